// --describe: what a program is and takes, as JSON. tests/describe.schema.json is its schema, and
// docs/measuring.md explains it.
#include <algorithm>
#include <cstdio>

#include "internal.hpp"

namespace demo {

const char* to_text(Role role) {
    constexpr const char* kNames[] = {"ours",   "chain",   "library", "yardstick",
                                      "record", "mistake", "limit"};
    return kNames[int(role)];
}

static const char* to_text(Then then) {
    constexpr const char* kNames[] = {"",         "rounded to TF32",  "offset by rows", "zipf",
                                      "counting", "counting from 32", "passing on"};
    return kNames[int(then)];
}

/// A string, a list or an object of JSON, from parts that are JSON already.
static std::string json_text(const std::string& text) {
    std::string escaped = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') escaped += '\\';
        escaped += c;
    }
    return escaped + "\"";
}
static std::string json_text_or_null(const std::string& text) {
    return text.empty() ? "null" : json_text(text);
}
static std::string json_list(const std::vector<std::string>& items) {
    return "[" + join(items, ", ") + "]";
}
template <class Range, class ToJson>
static std::string json_list(const Range& range, ToJson to_json) {
    std::vector<std::string> items;
    for (const auto& each : range) items.push_back(to_json(each));
    return json_list(items);
}
struct JsonMember {
    std::string name, value;
};
static std::string json_object(const std::vector<JsonMember>& members) {
    std::string text = "{";
    for (const JsonMember& member : members)
        text += (text == "{" ? "" : ", ") + json_text(member.name) + ": " + member.value;
    return text + "}";
}
static std::string json_number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
}
static std::string json_number(uint64_t value) { return std::to_string(value); }

/// An entry of "options".
static std::string to_json(const Option& option) {
    std::vector<JsonMember> members{{"name", json_text(option.name)},
                                    {"help", json_text(option.help)}};
    if (!option.choices.empty()) {
        members.push_back({"kind", "\"choice\""});
        members.push_back({"values", json_list(option.choices, json_text)});
        members.push_back({"default", json_text(option.choices.front())});
    } else if (option.numbers) {
        const Numbers& numbers = *option.numbers;
        members.push_back({"kind", "\"number\""});
        members.push_back({"first", json_number(numbers.first)});
        members.push_back({"last", json_number(numbers.last)});
        members.push_back({"multiple", json_number(numbers.multiple)});
        members.push_back({"default", numbers.usual ? json_number(*numbers.usual) : "null"});
    } else {
        members.push_back({"kind", option.any_text ? "\"name\"" : "\"flag\""});
    }
    if (const auto& [other, choice] = option.only_with; !other.empty())
        members.push_back({"only_with", json_list({json_text(other), json_text(choice)})});
    return json_object(members);
}

/// "hard": the hard rows, and their kinds, in turn.
static std::string to_json(const HardRows& hard) {
    if (hard.count == 0) return "null";
    std::vector<std::string> rows, kinds;
    for (size_t row = 0; row < hard.rows; ++row) {
        if (row == 32) row = std::max<size_t>(row, (hard.rows - 1) / 32 * 32);  // the last strip
        if (hard.is_hard(row)) rows.push_back(json_number(row));
    }
    for (unsigned int i = 0; i < hard.count; ++i)
        kinds.push_back(json_object({{"scale", json_number(double(hard.kinds[i].scale))},
                                     {"offset", json_number(double(hard.kinds[i].offset))},
                                     {"step", json_number(double(hard.kinds[i].step))},
                                     {"peak", json_number(double(hard.kinds[i].peak))}}));
    return json_object({{"rows", json_list(rows)},
                        {"every", json_number(uint64_t(hard.every()))},
                        {"kinds", json_list(kinds)}});
}

/// An entry of "inputs" or "outputs".
static std::string to_json(const Array& array) {
    auto number = [](size_t value) { return json_number(value); };
    std::vector<JsonMember> members{{"name", json_text(array.name)},
                                    {"dtype", json_text(array.dtype)},
                                    {"shape", json_list(array.shape, number)},
                                    {"bytes", json_number(array.bytes)}};
    if (!array.is_output && array.dtype == "uint32")
        members.push_back(
            {"fill", json_object({{"kind", "\"ids\""},
                                  {"seed", json_number(array.fill.seed)},
                                  {"then", json_text_or_null(to_text(array.fill.then))}})});
    else if (!array.is_output)
        members.push_back(
            {"fill",
             json_object(
                 {{"kind", "\"uniform\""},
                  {"seed", json_number(array.fill.seed)},
                  {"low", json_number(double(array.fill.offset) - double(array.fill.scale))},
                  {"high", json_number(double(array.fill.offset) + double(array.fill.scale))},
                  {"then", json_text_or_null(to_text(array.fill.then))},
                  {"hard", to_json(array.fill.hard)}})});
    return json_object(members);
}

/// An entry of "problems".
static std::string to_json(const Plan::Comparison& comparison) {
    const Workload& work = comparison.work;
    std::vector<std::string> kernels, inputs, outputs;
    std::vector<JsonMember> expected, parameters;
    for (const Plan::Kernel& kernel : comparison.kernels) {
        if (kernel.only.empty() || kernel.only == work.shape)
            kernels.push_back(json_text(kernel.name));
        const auto [least, most] = kernel.expected;
        if (most > 0)
            expected.push_back({kernel.name, json_list({json_number(least), json_number(most)})});
    }
    for (const auto& [name, value] : comparison.parameters)
        parameters.push_back({name, json_number(double(value))});
    for (const Array& array : comparison.arrays)
        (array.is_output ? outputs : inputs).push_back(to_json(array));
    return json_object({{"shape", json_text(work.shape)},
                        {"n", json_number(work.size)},
                        {"dtype", json_text(work.dtype)},
                        {"flops", json_number(work.flops)},
                        {"least_bytes", json_number(work.least_bytes)},
                        {"memory_bound", work.memory_bound ? "true" : "false"},
                        {"contenders", json_list(kernels)},
                        {"inputs", json_list(inputs)},
                        {"outputs", json_list(outputs)},
                        {"parameters", json_object(parameters)},
                        {"expected", json_object(expected)}});
}

/// "contenders": each kernel once, with the data types in which some plan runs it.
static std::string contenders_to_json(const std::vector<Plan>& plans) {
    std::vector<Plan::Kernel> kernels;
    std::map<std::string, std::vector<std::string>> types;  // of a kernel, as JSON
    for (const Plan& plan : plans)
        for (const Plan::Comparison& comparison : plan.comparisons)
            for (const Plan::Kernel& kernel : comparison.kernels) {
                std::vector<std::string>& own = types[kernel.name];
                if (own.empty()) kernels.push_back(kernel);
                const std::string type = json_text(comparison.work.dtype);
                if (std::find(own.begin(), own.end(), type) == own.end()) own.push_back(type);
            }
    return json_list(kernels, [&](const Plan::Kernel& kernel) {
        return json_object({{"kernel", json_text(kernel.name)},
                            {"role", json_text(to_text(kernel.role))},
                            {"dtypes", json_list(types[kernel.name])},
                            {"only", json_text_or_null(kernel.only)},
                            {"needs", json_text_or_null(kernel.why_not)},
                            {"program", json_text_or_null(kernel.program)},
                            {"repeatable", kernel.repeatable ? "true" : "false"}});
    });
}

void print_description(const Program& program, const std::vector<Plan>& plans, size_t chosen) {
    auto number = [](size_t value) { return json_number(value); };
    std::vector<std::string> types;
    for (const Plan& plan : plans)
        for (const Plan::Comparison& comparison : plan.comparisons) {
            const std::string type = json_text(comparison.work.dtype);
            if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
        }
    std::string sizes = json_object({{"multiple", json_number(program.step())},
                                     {"default", json_number(program.default_n)},
                                     {"measured", json_list(program.sizes, number)}});
    if (program.default_talk) sizes = "null";
    constexpr const char* kSweeps[] = {"never", "on request", "always", "always"};
    const std::vector<JsonMember> members{
        {"program", json_text(program.name)},
        {"summary", json_text(program.summary)},
        {"sweep", json_text(kSweeps[int(program.sweep)])},
        {"sizes", sizes},
        {"talk", program.talk ? json_object({{"multiple", "16"},
                                             {"measured", json_list(program.talk_sizes, number)}})
                              : "null"},
        {"shapes", program.any_shape
                       ? json_list(program.shapes,
                                   [&](Extent shape) {
                                       return json_list({number(shape.rows), number(shape.cols)});
                                   })
                       : "null"},
        {"variants", json_list(program.variants, json_text)},
        {"grid", program.grid.sizes.empty()
                     ? "null"
                     : json_object({{"kernels", json_list(program.grid.kernels, json_text)},
                                    {"sizes", json_list(program.grid.sizes, number)}})},
        {"dtypes", json_list(types)},
        {"options",
         json_list(options_of(program), [](const Option& option) { return to_json(option); })},
        {"contenders", contenders_to_json(plans)},
        {"problems", json_list(plans[chosen].comparisons,
                               [](const Plan::Comparison& each) { return to_json(each); })}};
    for (size_t i = 0; i < members.size(); ++i)  // a line for each: people read this, too
        std::printf("%s\"%s\": %s", i == 0 ? "{" : ",\n ", members[i].name.c_str(),
                    members[i].value.c_str());
    std::printf("}\n");
}

}  // namespace demo
