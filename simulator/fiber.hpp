// A fiber: a stack, and where it was when it last gave up the processor.
#pragma once

#include <cstddef>

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/common_interface_defs.h>
#endif

/// Leaves one stack for another: keeps there what a function has to leave as it was, notes in
/// `from` where, and returns to where the other one was left. (By `ret`: processors predict it.)
extern "C" void simulator_switch_stack(void** from, void* to);
#ifdef __x86_64__
constexpr size_t kWordsKept = 8, kWhereTo = 6;  // the last is where a first function returns to: 0
asm(R"(
        .text
simulator_switch_stack:
        pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
        movq %rsp, (%rdi)
        movq %rsi, %rsp
        popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
        ret
)");
#elif defined __aarch64__
constexpr size_t kWordsKept = 20, kWhereTo = 19;
asm(R"(
        .text
simulator_switch_stack:
        stp d8, d9, [sp, #-160]!
        stp d10, d11, [sp, #16]; stp d12, d13, [sp, #32]; stp d14, d15, [sp, #48]
        stp x19, x20, [sp, #64]; stp x21, x22, [sp, #80]; stp x23, x24, [sp, #96]
        stp x25, x26, [sp, #112]; stp x27, x28, [sp, #128]; stp x29, x30, [sp, #144]
        mov x9, sp
        str x9, [x0]
        mov sp, x1
        ldp d10, d11, [sp, #16]; ldp d12, d13, [sp, #32]; ldp d14, d15, [sp, #48]
        ldp x19, x20, [sp, #64]; ldp x21, x22, [sp, #80]; ldp x23, x24, [sp, #96]
        ldp x25, x26, [sp, #112]; ldp x27, x28, [sp, #128]; ldp x29, x30, [sp, #144]
        ldp d8, d9, [sp], #160
        ret
)");
#else
#error "how does this processor change stacks?"
#endif

namespace simulator {

class Fiber {
  public:
    using Entry = void (*)();

    /// The code that runs already, on its thread's own stack.
    Fiber() = default;

    /// One that calls entry() when first switched to. `entry` must not return.
    Fiber(char* stack, size_t bytes, Entry entry) : stack_(stack), bytes_(bytes), entry_(entry) {
        Entry* const kept = reinterpret_cast<Entry*>(stack + bytes) - kWordsKept;
        kept[kWhereTo] = start;
        kept_ = kept;
    }
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Leaves this fiber, the running one, for `next`; returns when a fiber switches back to it.
    /// All on one thread.
    void switch_to(Fiber& next) {
        left_ = this;
        entered_ = &next;
#ifdef SIMULATOR_SANITIZE
        void* fake_stack = nullptr;
        __sanitizer_start_switch_fiber(&fake_stack, next.stack_, next.bytes_);
#endif
        simulator_switch_stack(&kept_, next.kept_);
#ifdef SIMULATOR_SANITIZE
        left_->remember_stack(fake_stack);
#endif
    }

  private:
#ifdef SIMULATOR_SANITIZE
    /// Tells the sanitizer that the switch from here is over, and keeps what it knows of this
    /// stack.
    void remember_stack(void* fake_stack) {
        const void* stack = nullptr;
        __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes_);
        stack_ = static_cast<char*>(const_cast<void*>(stack));
    }
#endif
    static void start() {
#ifdef SIMULATOR_SANITIZE
        left_->remember_stack(nullptr);
#endif
        entered_->entry_();
    }

    static inline constinit thread_local Fiber* left_ = nullptr;  // of the latest switch
    static inline constinit thread_local Fiber* entered_ = nullptr;

    char* stack_ = nullptr;  // its lowest address
    size_t bytes_ = 0;
    Entry entry_ = nullptr;
    void* kept_ = nullptr;  // where simulator_switch_stack() left this stack
};

}  // namespace simulator
