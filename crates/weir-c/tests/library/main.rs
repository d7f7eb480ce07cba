//! The library as programs in C, C++, Python and Go use it: these are compiled here, and served by.

mod attacks;
mod examples;
mod header;
mod interfaces;
mod programs;
mod support;
