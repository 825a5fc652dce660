// How a program ends: one line on stderr and the exit code that scripts rely on.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace demo {

enum ExitCode {
    kVerified = 0,  // every result was verified
    kWrong = 1,     // a result was wrong
    kUsage = 2,     // the command line was not understood
    kFailed = 3,    // a CUDA or library call failed, or too little memory
    kSkipped = 77,  // nothing here can run this program
};

/// The program's name, as error messages and result lines show it. main_of() sets it.
inline std::string program_name = "demo";

/// Whether a line of progress stands on the terminal.
inline bool progress_shown = false;

/// Erases the line of progress, if there is one: called before anything else is printed.
inline void erase_progress() {
    if (!progress_shown) return;
    progress_shown = false;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
}

/// Prints "program: message" as one line on stderr, after all results so far. The message may
/// quote what somebody typed: a terminal gets no control characters.
inline void complain(std::string message) {
    erase_progress();
    std::fflush(stdout);
    for (char& c : message)
        if ((unsigned char)(c) < ' ' || c == 127) c = '?';
    std::fprintf(stderr, "%s: %s\n", program_name.c_str(), message.c_str());
}

/// Says what went wrong, and exits.
[[noreturn]] inline void fail(ExitCode code, const std::string& message) {
    complain(message);
    std::exit(code);
}

}  // namespace demo
