// Inputs and outputs, and verifying them, as far as no element type matters: hashes, the rows that
// are checked, the memory around an output.
#include <numeric>

#include "demo/data.cuh"
#include "demo/verify.cuh"

namespace demo {

void DeviceVerdict::reset() const {
    const Verdict none;
    DEMO_CHECK(cudaMemcpy(data(), &none, sizeof none, cudaMemcpyHostToDevice));
}

Verdict DeviceVerdict::get() const {
    Verdict verdict;
    DEMO_CHECK(cudaMemcpy(&verdict, data(), sizeof verdict, cudaMemcpyDeviceToHost));
    return verdict;
}

void Check::scribble(int byte) const {
    DEMO_CHECK(cudaMemsetAsync(output, byte, bytes));
    if (others) others(byte);
}

Check in_turn(const Check& first, const char* name, Check last) {
    auto both = [=](std::function<Verdict()> one, std::function<Verdict()> other) {
        return [=] {
            Verdict found = one();
            found.output = name;
            if (!found.ok()) return found;
            Verdict verdict = other();
            verdict.checked += found.checked;
            verdict.error_of_bound = std::max(verdict.error_of_bound, found.error_of_bound);
            verdict.output_hash += 3 * found.output_hash;
            return verdict;
        };
    };
    last.verify = both(first.verify, last.verify), last.noted = both(first.noted, last.noted);
    last.note = [=, note = last.note](auto... launch) { first.note(launch...), note(launch...); };
    last.others = [=](int byte) { first.scribble(byte); };
    return last;
}

// --- Inputs -------------------------------------------------------------------------------------

void fill_uniform(std::vector<float>& host, uint64_t seed) {
    for (size_t i = 0; i < host.size(); ++i) host[i] = random_uniform(seed, i);
}

size_t elements_of(const std::vector<size_t>& shape) {
    size_t count = 1;
    for (const size_t length : shape) count = saturating_product(count, length);
    return count;
}

Registered::Registered(Session& session, const Array& array) : session_(session) {
    session_.arrays.push_back(array);
    place_ = std::prev(session_.arrays.end());
#ifdef SIMULATOR
    simulator::name_buffer(array.data, array.name, array.dtype, array.shape.back());
#endif
}

void Registered::harden(HardRows hard) const {
    const size_t columns = place_->shape.back();
    hard.rows = elements_of(place_->shape) / columns;
    std::rotate(hard.kinds, hard.kinds + session_.options.seed % hard.count,
                hard.kinds + hard.count);
    place_->fill.hard = hard;
    place_->refill(place_->fill);
}

// --- Hashes -------------------------------------------------------------------------------------

/// Adds up a hash of output[bytes]: of each word's place and bits. Cheaper than scan_output().
__global__ void hash_words(const void* output, size_t bytes, Verdict* verdict) {
    const uint64_t* const words = static_cast<const uint64_t*>(output);
    const size_t stride = size_t(gridDim.x) * blockDim.x, size = bytes / sizeof *words;
    const size_t thread = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned long long hash = 0;
#pragma unroll 4
    for (size_t i = thread; i < size; i += stride) hash += random_bits(words[i], i);
    if (thread < bytes % sizeof *words)
        hash += random_bits(static_cast<const uint8_t*>(output)[bytes - 1 - thread], size + thread);
    for (int lane = 16; lane > 0; lane /= 2) hash += __shfl_xor_sync(~0u, hash, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(&verdict->output_hash, hash);
}

/// Notes whether this launch is wrong or, if `repeatable`, its hash is not that of the `first`.
/// Only the first such launch counts. One thread.
__global__ void note_launch(size_t launch, bool first, bool repeatable, Verdict* verdict) {
    if (first) verdict->first_hash = verdict->output_hash;
    if (verdict->timed == 0) {
        verdict->differs = repeatable && verdict->output_hash != verdict->first_hash;
        if (verdict->faulty()) verdict->timed = launch;
    }
    verdict->output_hash = 0;
}

void note_hash(const void* output, size_t bytes, size_t launch, bool first, bool repeatable,
               Verdict* verdict) {
    hash_words<<<blocks_to_visit(bytes / 8), 256>>>(output, bytes, verdict);
    note_launch<<<1, 1>>>(launch, first, repeatable, verdict);
}

// --- Checked rows -------------------------------------------------------------------------------

CheckedRows CheckedRows::some(size_t M, size_t elements, size_t terms, uint64_t seed) {
    const bool all = saturating_product(M, elements) <= size_t(1) << 24 &&
                     saturating_product(M, terms) <= size_t(1) << (kSimulator ? 26 : 36);
    return {M, all ? M : sample_size(M), seed};
}

size_t CheckedRows::sample_size(size_t M) {
    if (M <= 2048) return M;
    const size_t before_last = (M - 1) / 32;  // strips of 32 rows
    return 32 + (before_last - 1) + (M - 32 * before_last);
}

CheckedRows::CheckedRows(size_t M, size_t compared, uint64_t seed)
    : Buffer<size_t>(saturating_sum(compared, kSpots)), compared(compared) {
    if (dry_run) return;
    std::vector<size_t> list(compared);
    std::iota(list.begin(), list.end(), 0);
    if (compared < M) list = sampled_rows(M, seed);
    for (size_t i = 0; i < kSpots; ++i) list.push_back(random_bits(seed, i) % M);
    DEMO_CHECK(cudaMemcpy(data(), list.data(), bytes(), cudaMemcpyHostToDevice));
}

// --- Guards -------------------------------------------------------------------------------------

/// Word i of the memory around an output: a NaN in every type, yet not the one of poison().
__device__ static uint16_t guard_word(size_t i) {
    return uint16_t(0xFF81 + random_bits(0, i) % 126);
}
__global__ void fill_words(uint16_t* words, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) words[i] = guard_word(i);
}
/// Counts the bytes that are not as fill_words() left them.
__global__ void count_written(const uint16_t* words, size_t size, Verdict* verdict) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const unsigned int changed = i < size ? words[i] ^ guard_word(i) : 0;
    if (changed) atomicAdd(&verdict->written_outside, changed > 0xFF && changed & 0xFF ? 2ull : 1);
}

static constexpr size_t kGuard = kSimulator ? 0 : 128 << 10;  // bytes, on both sides

/// Calls f(words, size) for the guards of an output of so many bytes in `memory`.
static void for_guards(char* memory, size_t bytes, std::function<void(uint16_t*, size_t)> f) {
    if (dry_run || kGuard == 0) return;
    for (char* guard : {memory, memory + kGuard + bytes})
        f(reinterpret_cast<uint16_t*>(guard), kGuard / sizeof(uint16_t));
}

static void fill_guard(uint16_t* words, size_t size) {
    fill_words<<<size / 256, 256>>>(words, size);
    DEMO_CHECK(cudaGetLastError());
}

Guarded::Guarded(size_t bytes) : bytes_(bytes), buffer_(saturating_sum(bytes, 2 * kGuard)) {
    for_guards(buffer_.data(), bytes_, fill_guard);
}

void* Guarded::data() const { return dry_run ? nullptr : buffer_.data() + kGuard; }

size_t Guarded::written_outside() const {
    size_t written = 0;
    for_guards(buffer_.data(), bytes_, [&](uint16_t* words, size_t size) {
        const DeviceVerdict found;
        found.reset();
        count_written<<<size / 256, 256>>>(words, size, found.data());
        const size_t here = found.get().written_outside;
        if (here > 0) fill_guard(words, size);
        written += here;
    });
    return written;
}

}  // namespace demo
