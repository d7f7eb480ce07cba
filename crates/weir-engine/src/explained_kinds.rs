//! Enums whose values each have a word for labels, a sentence for people, and one thing more.

/// Makes an enum and the table of what is said of its values, which have one order; and `ALL`, `as_str`, `says`. The thing that
/// each has besides, a value of the enum after the colon, is given by the function after the arrow.
macro_rules! explained_kinds {
    (
        $(#[$meta:meta])* $kinds:ident: $tag:ident => $(#[$of_tag:meta])* $given:ident;
        $($kind:ident $value:ident $name:literal $says:literal)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $kinds {
            $(#[doc = $says] $kind,)*
        }

        impl $kinds {
            /// All of them; the position of each is its number.
            pub const ALL: &[$kinds] = &[$($kinds::$kind,)*];

            const SAID: &[($tag, &str, &str)] = &[$(($tag::$value, $name, $says),)*];

            $(#[$of_tag])*
            pub fn $given(self) -> $tag {
                $kinds::SAID[self as usize].0
            }

            /// The word for it in labels and tables.
            pub fn as_str(self) -> &'static str {
                $kinds::SAID[self as usize].1
            }

            /// A sentence for people.
            pub fn says(self) -> &'static str {
                $kinds::SAID[self as usize].2
            }
        }
    };
}

pub(crate) use explained_kinds;
