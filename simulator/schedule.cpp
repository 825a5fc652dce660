#include "schedule.hpp"

#include <charconv>
#include <cstdlib>
#include <string>

#include "errors.hpp"

namespace simulator {

Schedule::Schedule() {
    const char* const value = std::getenv("DEMO_SCHEDULE");
    const std::string text = value ? value : "";
    if (text.empty() || text == "forward") return;
    order = text == "reverse" ? kReverse : kRandom;
    if (order == kReverse) return;
    const char *const digits = text.c_str() + 7, *const end = text.c_str() + text.size();
    if (!text.starts_with("random:") || std::from_chars(digits, end, seed).ptr != end ||
        digits == end)
        fail(2, "DEMO_SCHEDULE takes forward, reverse or random:SEED, not '%s'", text.c_str());
}
const Schedule schedule;

}  // namespace simulator
