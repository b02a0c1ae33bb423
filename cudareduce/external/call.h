// Calls a function of a host program that has no main(), with values made from text.
#pragma once
#include <cstdlib>
#include <vector>

#include "recorder.h"

namespace recorder {

void describe(const char *name, char kind);  // one line of the log: p, i, b, f, s (a stream) or c
void again();                                // what follows is of the second call
// The same memory in each call.
void *parameter(const char *name, size_t bytes, const char *element);

template <class T, class = void>
struct IsContainer : std::false_type {};
template <class T>
struct IsContainer<T, std::void_t<decltype(std::declval<T &>().resize(1))>> : std::true_type {};

template <class P>
struct Given {
  using Plain = std::remove_cv_t<std::remove_reference_t<P>>;
  static constexpr bool is_stream = std::is_same_v<Plain, cudaStream_t>;
  static constexpr char kind = is_stream                           ? 's'
                               : std::is_pointer_v<Plain>          ? 'p'
                               : std::is_same_v<Plain, bool>       ? 'b'
                               : std::is_integral_v<Plain>         ? 'i'
                               : std::is_enum_v<Plain>             ? 'b'
                               : std::is_floating_point_v<Plain>   ? 'f'
                               : IsContainer<Plain>::value         ? 'p'
                                                                   : 'c';

  // `text` is the number of elements behind a pointer, or the value of a number.
  static Plain &make(const char *name, const char *text) {
    static Plain value{};
    if constexpr (is_stream) {
      value = nullptr;
    } else if constexpr (std::is_pointer_v<Plain>) {
      using Element = std::remove_pointer_t<Plain>;
      if constexpr (!std::is_function_v<Element>) {
        constexpr size_t bytes = size_of<Element>() ? size_of<Element>() : 8;
        value = static_cast<Plain>(parameter(
            name, strtoull(text, nullptr, 10) * bytes, name_holder<std::remove_cv_t<Element>>()));
      }
    } else if constexpr (std::is_arithmetic_v<Plain>) {
      value = static_cast<Plain>(strtod(text, nullptr));
    } else if constexpr (std::is_enum_v<Plain>) {
      value = static_cast<Plain>(strtoll(text, nullptr, 10));
    } else if constexpr (IsContainer<Plain>::value) {
      value.resize(strtoull(text, nullptr, 10));
    }
    return value;
  }
};

template <class... P, class F, size_t... I>
int call(F function, std::vector<const char *> names, char **values, std::index_sequence<I...>) {
  names.resize(sizeof...(P), "");
  if (values[0] == nullptr && sizeof...(P) > 0) {
    (describe(names[I], Given<P>::kind), ...);
  } else {
    function(static_cast<P>(Given<P>::make(names[I], values[I]))...);
    for (const char *name : names)
      if (*name == '\0') return 0;
    again();  // a function may leave state to its next call
    function(static_cast<P>(Given<P>::make(names[I], values[I]))...);
  }
  return 0;
}

template <class R, class... P>
int call(R (*function)(P...), std::vector<const char *> names, char **values) {
  return call<P...>(function, names, values, std::index_sequence_for<P...>());
}

// A method of an object that needs no arguments to be made.
template <class C, class R, class... P>
int call(R (C::*method)(P...), std::vector<const char *> names, char **values) {
  static C object;
  const auto function = [&](P... arguments) { (object.*method)(static_cast<P>(arguments)...); };
  return call<P...>(function, names, values, std::index_sequence_for<P...>());
}
template <class C, class R, class... P>
int call(R (C::*method)(P...) const, std::vector<const char *> names, char **values) {
  return call(reinterpret_cast<R (C::*)(P...)>(method), names, values);
}

}  // namespace recorder
