// For experiments, which print a screen of their own.
#pragma once

#include "session.cuh"

namespace demo {

/// A contender that ran, and what came of it.
struct Measured {
    Contender contender;
    Result result;
};

/// Like Session::run(), but leaves printing to print_row(). Returns nothing in a dry run.
/// `columns`: what the last four columns of --csv say of a contender and its median in ms.
std::vector<Measured> measure(
    Session& session, const Workload& work, const Check& check,
    const std::vector<Contender>& contenders, const std::vector<Contender>& records = {},
    const std::function<std::string(const Contender&, double)>& columns = {});

/// A cell of a line: what stands above it, and perhaps its unit.
struct Cell {
    std::string title, text, unit = "";
};

/// Prints a line of the table, for people only. It says whether all results since the last line are
/// right. A new head is printed first. A cell is as wide as its title or its text.
void print_row(const Session& session, const std::vector<Cell>& cells);

/// Prints a line of the usual table, which ends with `verdict` if the result is right.
void print_line(const Session& session, const Workload& work, const Measured& measured,
                const std::string& verdict);

std::string figure(double value);  // 4 digits in 8 columns; "-" where it is not known

std::string left(const std::string& text, size_t width);   // filled up with blanks
std::string right(const std::string& text, size_t width);  // likewise, in front

}  // namespace demo
