#include "schedule.hpp"

#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

#include "errors.hpp"

namespace simulator {

Schedule::Schedule() {
    const char* const value = std::getenv("DEMO_SCHEDULE");
    const std::string text = value ? value : "";
    alone = text == "alone";
    if (text.empty() || text == "forward" || alone) return;
    order = text == "reverse" ? kReverse : kRandom;
    if (order == kReverse) return;
    const std::string prefix = "random:";
    const std::string digits = text.starts_with(prefix) ? text.substr(prefix.size()) : "";
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, seed);
    if (error != std::errc() || rest != end)  // no number, one too large, or more than a number
        fail(2, "DEMO_SCHEDULE takes forward, reverse, random:SEED or alone, not '%s'",
             text.c_str());
}
const Schedule schedule;

}  // namespace simulator
