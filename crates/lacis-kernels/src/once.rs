//! Heavy code, compiled in this crate once for each number type.
//!
//! A generic function is compiled where it is called: in every crate, and again in every test. The
//! bodies of operators are large, three instruction sets of each, so that would take minutes each
//! time. Instead a body is reached through a hidden method of its number type. The methods are not
//! generic; so they, and all they call, are compiled here.

/// Makes a hidden trait of functions that are implemented, for all number types, by generic ones:
/// `once!(Trait: fn name(arg: Type<Self>, …) -> Result = path::body; …)` calls
/// `path::body::<T>(arg, …)`.
macro_rules! once {
    ($trait:ident: $(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:path;
    )+) => {
        #[doc(hidden)]
        #[allow(missing_docs, reason = "hidden: the functions that call these are documented")]
        pub trait $trait: Sized {
            $(fn $name($($arg: $type),*) $(-> $result)? where Self: $crate::real::Stored;)+
        }
        $crate::once::once!(@each $trait [f32, f64, half::bf16] {
            $(fn $name($($arg: $type),*) $(-> $result)? = $body;)+
        });
    };
    (@each $trait:ident [$($number:ty),*] $functions:tt) => {
        $($crate::once::once!(@one $trait $number, $functions);)*
    };
    (@one $trait:ident $number:ty, {$(
        fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $body:path;
    )+}) => {
        impl $trait for $number {
            $(fn $name($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            })+
        }
    };
}
pub(crate) use once;
