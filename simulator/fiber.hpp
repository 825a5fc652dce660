// A fiber: a stack, and where it was when it last gave up the processor. Boost.Context switches
// where the build found it; elsewhere ucontext starts a fiber, and from then on setjmp and longjmp
// switch, because unlike swapcontext they make no system call.
#pragma once

#undef _FORTIFY_SOURCE  // its longjmp takes another stack for a corrupted one
#include <cstddef>

#ifdef SIMULATOR_BOOST
#include <boost/context/detail/fcontext.hpp>
#else
#include <setjmp.h>
#include <ucontext.h>
#endif
#ifdef SIMULATOR_SANITIZE
#include <sanitizer/common_interface_defs.h>
#endif

namespace simulator {

class Fiber {
  public:
    using Entry = void (*)();

    /// The code that runs already, on its thread's own stack.
    Fiber() { started_ = true; }

    /// One that calls entry() when first switched to. `entry` must not return.
    Fiber(char* stack, size_t bytes, Entry entry) : stack_(stack), bytes_(bytes), entry_(entry) {
#ifdef SIMULATOR_BOOST
        context_ = boost::context::detail::make_fcontext(stack + bytes, bytes, start);
#endif
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
#ifdef SIMULATOR_BOOST
        left_->context_ = nullptr;
        const auto from = boost::context::detail::jump_fcontext(next.context_, nullptr);
        left_->context_ = from.fctx;
#else
        if (_setjmp(resume_) == 0) {
            if (next.started_) _longjmp(next.resume_, 1);
            next.started_ = true;
            ucontext_t first;
            getcontext(&first);
            first.uc_stack.ss_sp = next.stack_;
            first.uc_stack.ss_size = next.bytes_;
            makecontext(&first, start, 0);
            setcontext(&first);
        }
#endif
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
#ifdef SIMULATOR_BOOST
    static void start(boost::context::detail::transfer_t from) {
        left_->context_ = from.fctx;
#else
    static void start() {
#endif
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
    bool started_ = false;
#ifdef SIMULATOR_BOOST
    boost::context::detail::fcontext_t context_ = nullptr;
#else
    jmp_buf resume_;
#endif
};

}  // namespace simulator
