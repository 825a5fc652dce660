// How a program ends: one line on stderr and the exit code that scripts rely on.
#pragma once

#include <stdexcept>
#include <string>

namespace demo {

enum ExitCode {
    kVerified = 0,  // every result was verified
    kWrong = 1,     // a result was wrong
    kUsage = 2,     // the command line was not understood
    kFailed = 3,    // a CUDA or library call failed, or too little memory
    kSkipped = 77,  // nothing here can run this program
};

/// The command line asks for what the program does not take: main_of() says so, and ends with 2.
using UsageError = std::invalid_argument;

/// The program's name, as error messages and result lines show it. main_of() sets it.
extern std::string program_name;

/// Shows what is being done, if stderr is a terminal, until the next line is printed.
void show_progress(const std::string& text);

/// Prints "program: message" on stderr, after all results so far: one line, which a terminal
/// breaks.
void complain(std::string message);

/// Says what went wrong, and exits.
[[noreturn]] void fail(ExitCode code, const std::string& message);

}  // namespace demo
