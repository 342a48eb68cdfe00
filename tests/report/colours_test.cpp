// The page's colours: each two are far apart, on white and on black, for people with colour-blindness too.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>

#include "tools/report/page.h"

namespace lockstep::report {
namespace {

using Colour = std::array<double, 3>;
using Matrix = std::array<Colour, 3>;

Colour times(const Matrix& matrix, const Colour& colour) {
  Colour product{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) product[i] += matrix[i][j] * colour[j];
  }
  return product;
}

// Linear light, 0 to 1.
Colour linear(const std::string& hex) {
  Colour colour{};
  for (size_t i = 0; i < 3; ++i) {
    const double part = std::stoi(hex.substr(2 * i, 2), nullptr, 16) / 255.0;
    colour[i] = part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
  }
  return colour;
}

// Of WCAG 2.
double contrast(const Colour& one, const Colour& other) {
  const auto light = [](const Colour& c) { return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] + 0.05; };
  return std::max(light(one), light(other)) / std::min(light(one), light(other));
}

// Where it lies in Oklab (B. Ottosson 2020), whose distances are those that eyes see.
Colour oklab(const Colour& colour) {
  auto cones = times({{{0.4122214708, 0.5363325363, 0.0514459929},
                       {0.2119034982, 0.6806995451, 0.1073969566},
                       {0.0883024619, 0.2817188376, 0.6299787005}}},
                     colour);
  for (auto& cone : cones) cone = std::cbrt(cone);
  return times({{{0.2104542553, 0.7936177850, -0.0040720468},
                 {1.9779984951, -2.4285922050, 0.4505937099},
                 {0.0259040371, 0.7827717662, -0.8086757660}}},
               cones);
}

struct Eyes {
  const char* name;
  double apart;  // at least
  Matrix sees;
};
// G. M. Machado et al. 2009, the whole of each deficiency; the last is a hundred times rarer than the others.
constexpr std::array<Eyes, 4> kEyes = {
    {{"all", 0.1, {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}},
     {"no red",
      0.09,
      {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}}},
     {"no green",
      0.09,
      {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}}},
     {"no blue",
      0.06,
      {{{1.255528, -0.076749, -0.178779},
        {-0.078411, 0.930809, 0.147602},
        {0.004733, 0.691367, 0.303900}}}}}};

Colour seen(const Eyes& eyes, const Colour& colour) {
  auto seen = times(eyes.sees, colour);
  for (auto& part : seen) part = std::clamp(part, 0.0, 1.0);
  return oklab(seen);
}

double between(const Colour& one, const Colour& other) {
  return std::hypot(one[0] - other[0], one[1] - other[1], one[2] - other[2]);
}

std::vector<Colour> colours_of(const std::string& css, const char* named) {
  std::vector<Colour> colours;
  const std::regex rule(std::string("--") + named + ":#([0-9a-f]{6});");
  for (std::sregex_iterator at(css.begin(), css.end(), rule), end; at != end; ++at)
    colours.push_back(linear((*at)[1]));
  return colours;
}

// The colours of the page on light, or on dark.
std::string theme(bool dark) {
  const auto html = Page("").html();
  const auto begin = dark ? html.find("prefers-color-scheme:dark") : html.find(":root{");
  return html.substr(begin, html.find('}', begin) - begin);
}

class Colours : public ::testing::TestWithParam<std::string> {};

TEST_P(Colours, EveryTwoColoursAreFarApartForAllEyes) {
  const auto colours = colours_of(GetParam(), "ls[0-9]");
  ASSERT_EQ(colours.size(), 8U);
  for (const auto& eyes : kEyes) {
    for (size_t i = 0; i < colours.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_GT(between(seen(eyes, colours[i]), seen(eyes, colours[j])), eyes.apart)
            << eyes.name << ": " << j << " and " << i;
    }
  }
}

TEST_P(Colours, EveryColourStandsOutFromItsCard) {
  const auto card = colours_of(GetParam(), "card");
  ASSERT_EQ(card.size(), 1U);
  for (const auto& colour : colours_of(GetParam(), "ls[0-9]")) EXPECT_GE(contrast(colour, card[0]), 3);
  for (const auto& text : colours_of(GetParam(), "(?:ink|soft|ls0)")) EXPECT_GE(contrast(text, card[0]), 4.5);
}

// As in a report's confusion matrix.
TEST_P(Colours, ANumberIsReadOnNearlyHalfOfEachColour) {
  const auto& css = GetParam();
  const auto ink = colours_of(css, "ink"), paper = colours_of(css, "paper");
  const auto bytes = [](const Colour& c) {
    Colour shown{};
    for (size_t i = 0; i < 3; ++i)
      shown[i] = c[i] <= 0.0031308 ? 12.92 * c[i] : 1.055 * std::pow(c[i], 1 / 2.4) - 0.055;
    return shown;
  };
  for (const auto& colour : colours_of(css, "ls[12]")) {
    Colour mixed{};
    for (size_t i = 0; i < 3; ++i) {
      const double part = 0.45 * bytes(colour)[i] + 0.55 * bytes(paper.at(0))[i];
      mixed[i] = part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
    }
    EXPECT_GE(contrast(ink.at(0), mixed), 4.5);
  }
}

INSTANTIATE_TEST_SUITE_P(Themes, Colours, ::testing::Values(theme(false), theme(true)));

}  // namespace
}  // namespace lockstep::report
