// What a program says on stderr.
#include "demo/errors.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "internal.hpp"

namespace demo {

std::string program_name = "demo";

static bool progress_shown = false;

bool is_terminal(int file) {
    const char* const term = std::getenv("TERM");
    return isatty(file) && term && std::string(term) != "dumb";
}

void show_progress(const std::string& text) {
    static const bool is_shown = is_terminal(STDERR_FILENO);
    if (!is_shown) return;
    erase_progress();
    std::fprintf(stderr, "  %s ...", text.c_str());
    std::fflush(stderr);
    progress_shown = true;
}

void erase_progress() {
    if (!progress_shown) return;
    progress_shown = false;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
}

void complain(std::string message) {
    erase_progress();
    std::fflush(stdout);
    for (char& c : message)  // it may quote what somebody typed: no control characters
        if ((unsigned char)(c) < ' ' || c == 127) c = '?';
    message = program_name + ": " + message;
    std::fputs((is_terminal(STDERR_FILENO) ? wrapped(message, 2) : message + "\n").c_str(), stderr);
}

void fail(ExitCode code, const std::string& message) {
    complain(message);
    std::exit(code);
}

}  // namespace demo
