// The type traits that the emulator needs. Including <type_traits> and <utility> would double the time
// to parse its headers.
#pragma once

namespace cudaemu {

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <bool, class T = void>
struct When {};
template <class T>
struct When<true, T> {
  using type = T;
};
template <bool condition, class T = void>
using OnlyIf = typename When<condition, T>::type;

template <class T>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<T &> : Plain<T> {};

template <class T>
constexpr bool floating = same<T, float> || same<T, double> || same<T, long double>;
template <class T>
constexpr bool pointer = false;
template <class T>
constexpr bool pointer<T *> = true;
template <class T>
constexpr bool number = !__is_class(T) && !__is_union(T) && !__is_enum(T) && !pointer<T>;

template <size_t... index>
struct Indices {};
template <size_t count>
using IndicesUpTo = Indices<__integer_pack(count)...>;

}  // namespace cudaemu
