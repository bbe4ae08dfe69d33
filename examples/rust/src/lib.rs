//! Launches the kernels of `.silo` bundles from Rust: the functions of libsilo, with `Result` for errors, and with
//! lifetimes that keep a bundle open as long as its kernels are in use. The crate needs no other crate, no Python, and
//! no compiler on the machine that runs it.
//!
//! One function must be `unsafe`: [`Kernel::launch`]. A kernel is native code that does not check its arguments, and no
//! library can know that the integer `n` is the length of the array passed with it. Write a safe function for each
//! kernel that checks its arguments and then launches, as `main.rs` does.

mod ffi;

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::fmt;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::ptr;

/// An error of libsilo: a code of `enum silo_code`, and a text that names the kernel and the argument.
pub struct Error {
    pub code: i32,
    /// The name of the code in two or three words, for example "no variant".
    pub name: &'static str,
    /// The error code of a device's driver; 0 if the driver reported none.
    pub driver_code: i32,
    pub text: String,
    /// If no variant serves a call: one line for each variant, with the reason.
    pub details: Option<String>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn usage(text: &str) -> Self {
        Error {
            code: 20,
            name: "usage",
            driver_code: 0,
            text: text.into(),
            details: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} ({})", self.text, self.name)?;
        match &self.details {
            Some(lines) => write!(to, "\n{lines}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

impl std::error::Error for Error {}

/// Calls a function of libsilo with a pointer to an error struct, and converts the error to a `Result`.
fn checked(function: impl FnOnce(*mut ffi::Error) -> c_int) -> Result<()> {
    // libsilo requires a zeroed struct, and zero is a valid value of each field.
    let mut raw: ffi::Error = unsafe { std::mem::zeroed() };
    if function(&mut raw) == 0 {
        return Ok(());
    }
    let made = unsafe {
        Error {
            code: raw.code,
            name: CStr::from_ptr(ffi::silo_code_name(raw.code)).to_str().unwrap_or("?"),
            driver_code: raw.driver_code,
            text: owned(raw.text.as_ptr()),
            details: (!raw.details.is_null()).then(|| owned(raw.details)),
        }
    };
    unsafe { ffi::silo_error_clear(&mut raw) };
    Err(made)
}

unsafe fn owned(text: *const c_char) -> String {
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

fn c_string(text: &[u8]) -> Result<CString> {
    CString::new(text).map_err(|_| Error::usage("a name holds a zero byte"))
}

/// Returns the version of libsilo.
pub fn version() -> String {
    unsafe { owned(ffi::silo_version()) }
}

/// Native code for this machine's CPU that is about to be loaded.
pub struct HostCode {
    pub kernel: String,
    /// SHA-256 of the bundle's manifest, in hex. The manifest contains the hash of each piece of code and how it is
    /// called.
    pub identity: String,
    /// SHA-256 of the code alone, in hex.
    pub sha256: String,
    /// SHA-256 of the code and of everything that decides how it is called, in hex.
    pub digest: String,
}

type Vouch = Box<dyn Fn(&HostCode) -> bool + Send + Sync>;

unsafe extern "C" fn ask(context: *mut c_void, code: *const ffi::HostCode) -> c_int {
    let vouch = &*context.cast::<Vouch>();
    let code = &*code;
    let told = HostCode {
        kernel: owned(code.kernel),
        identity: owned(code.identity),
        sha256: owned(code.sha256),
        digest: owned(code.digest),
    };
    // A panic must not unwind into C. It counts as a refusal of the code.
    c_int::from(catch_unwind(AssertUnwindSafe(|| vouch(&told))).unwrap_or(false))
}

/// An open bundle. Its kernels borrow the bundle, so that it stays open as long as they are in use.
pub struct Bundle {
    raw: *mut ffi::Bundle,
    _vouch: Box<Vouch>, // kept as long as the bundle, because libsilo may call it until silo_close
}

// Every function of libsilo but silo_close may be called from any thread. silo_close is called by `drop`, when no other
// thread can use the bundle.
unsafe impl Send for Bundle {}
unsafe impl Sync for Bundle {}

impl Bundle {
    /// Opens a bundle file. `vouch` is called before native code for the CPU is loaded, and returns whether to trust
    /// the code. Code for GPUs is loaded without this call.
    pub fn open(path: impl AsRef<Path>, vouch: impl Fn(&HostCode) -> bool + Send + Sync + 'static) -> Result<Bundle> {
        let path = c_string(path.as_ref().as_os_str().as_bytes())?;
        let vouch: Box<Vouch> = Box::new(Box::new(vouch));
        let options = ffi::Options {
            size: std::mem::size_of::<ffi::Options>(),
            flags: 0,
            reserved: 0,
            context: ptr::from_ref::<Vouch>(&vouch).cast_mut().cast(),
            file_memory: 0,
            vouch: Some(ask),
            log: None,
            allocate: None,
            release: None,
            cuda_library: ptr::null(),
            hip_library: ptr::null(),
        };
        let mut raw = ptr::null_mut();
        checked(|error| unsafe { ffi::silo_open(path.as_ptr(), &options, &mut raw, error) })?;
        Ok(Bundle { raw, _vouch: vouch })
    }

    /// Returns the SHA-256 of the bundle's manifest, in hex.
    pub fn identity(&self) -> String {
        unsafe { owned(ffi::silo_identity(self.raw)) }
    }

    /// Returns the names of the bundle's kernels.
    pub fn names(&self) -> Vec<String> {
        (0..)
            .map(|index| unsafe { ffi::silo_kernel_name(self.raw, index) })
            .take_while(|name| !name.is_null())
            .map(|name| unsafe { owned(name) })
            .collect()
    }

    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>> {
        let name = c_string(name.as_bytes())?;
        let mut raw = ptr::null_mut();
        checked(|error| unsafe { ffi::silo_find(self.raw, name.as_ptr(), &mut raw, error) })?;
        Ok(Kernel {
            raw,
            bundle: PhantomData,
        })
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        unsafe { ffi::silo_close(self.raw) }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that the elements of an array argument may have. `CODE` is the type's value of `enum silo_element`.
pub trait Element: sealed::Sealed + Copy {
    const CODE: u16;
}

macro_rules! elements {
    ($($type:ty: $code:literal),*) => {
        $(impl sealed::Sealed for $type {} impl Element for $type { const CODE: u16 = $code; })*
    };
}

elements!(i8: 0x0008, i16: 0x0010, i32: 0x0020, i64: 0x0040, u8: 0x0108, u16: 0x0110, u32: 0x0120, u64: 0x0140,
          f32: 0x0220, f64: 0x0240);

/// One argument of a call. It borrows its slice as long as it lives, mutably if the kernel writes to the slice.
pub struct Argument<'a> {
    raw: ffi::Argument,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Argument<'a> {
    fn new(kind: u8, element: u16, value: ffi::Value) -> Self {
        let raw = ffi::Argument {
            kind,
            flags: 0,
            element,
            rank: 0,
            value,
            shape: ptr::null(),
            strides: ptr::null(),
            block: ptr::null(),
        };
        Argument {
            raw,
            borrowed: PhantomData,
        }
    }

    /// Makes an argument of memory that the kernel only reads.
    pub fn reads<T: Element>(slice: &'a [T]) -> Self {
        Self::new(
            ffi::POINTER,
            T::CODE,
            ffi::Value {
                pointer: slice.as_ptr().cast_mut().cast(),
            },
        )
    }

    /// Makes an argument of memory that the kernel writes, and may also read.
    pub fn writes<T: Element>(slice: &'a mut [T]) -> Self {
        Self::new(
            ffi::POINTER,
            T::CODE,
            ffi::Value {
                pointer: slice.as_mut_ptr().cast(),
            },
        )
    }

    /// Makes an argument of memory on a GPU; `address` is a device address.
    pub fn device<T: Element>(address: usize) -> Self {
        Self::new(
            ffi::POINTER,
            T::CODE,
            ffi::Value {
                pointer: address as *mut c_void,
            },
        )
    }

    pub fn int(value: i64) -> Self {
        Self::new(ffi::INT, 0, ffi::Value { integer: value })
    }

    pub fn float(value: f64) -> Self {
        Self::new(ffi::FLOAT, 0, ffi::Value { real: value })
    }

    pub fn bool(value: bool) -> Self {
        Self::new(ffi::BOOL, 0, ffi::Value { integer: value.into() })
    }

    /// Makes an argument of a string constant, for example `c"leaky_relu"`.
    pub fn text(value: &'a CStr) -> Self {
        Self::new(ffi::TEXT, 0, ffi::Value { text: value.as_ptr() })
    }
}

/// The device and stream of a call.
#[derive(Clone, Copy)]
pub struct Queue(ffi::Queue);

impl Queue {
    pub fn cpu() -> Self {
        Queue(ffi::Queue {
            device: ffi::CPU,
            index: 0,
            stream: ptr::null_mut(),
        })
    }

    /// Makes the queue of CUDA device number `index`. `stream` is a stream of the device's primary context; null: the
    /// default stream.
    pub fn cuda(index: i32, stream: *mut c_void) -> Self {
        Queue(ffi::Queue {
            device: ffi::CUDA,
            index,
            stream,
        })
    }

    pub fn rocm(index: i32, stream: *mut c_void) -> Self {
        Queue(ffi::Queue {
            device: ffi::ROCM,
            index,
            stream,
        })
    }
}

/// A kernel of an open bundle.
#[derive(Clone, Copy)]
pub struct Kernel<'b> {
    raw: *mut ffi::Kernel,
    bundle: PhantomData<&'b Bundle>,
}

unsafe impl Send for Kernel<'_> {}
unsafe impl Sync for Kernel<'_> {}

impl Kernel<'_> {
    /// Launches the kernel on its declared grid, with arguments in the order of the kernel's parameters. On the CPU the
    /// kernel has run when this function returns; on a GPU it runs in the order of the queue.
    ///
    /// # Safety
    ///
    /// Integer arguments such as lengths and strides must describe the arrays that are passed with them, because the
    /// kernel reads and writes memory by these numbers. Memory that the kernel writes must not overlap memory that it
    /// only reads. On a GPU the memory must live until the kernel has run.
    pub unsafe fn launch(&self, queue: Queue, arguments: &[Argument<'_>]) -> Result<()> {
        let raw: Vec<ffi::Argument> = arguments.iter().map(|one| one.raw).collect();
        checked(|error| ffi::silo_launch(self.raw, &queue.0, raw.as_ptr(), raw.len(), ptr::null(), error))
    }

    /// Returns a report: the variant that a call with these arguments would use, and the reason for or against each
    /// variant. Loads and launches nothing.
    pub fn explain(&self, queue: Queue, arguments: &[Argument<'_>]) -> Result<String> {
        let raw: Vec<ffi::Argument> = arguments.iter().map(|one| one.raw).collect();
        let mut text = ptr::null_mut();
        checked(|error| unsafe {
            ffi::silo_explain(
                self.raw,
                &queue.0,
                raw.as_ptr(),
                raw.len(),
                ptr::null(),
                &mut text,
                error,
            )
        })?;
        let made = unsafe { owned(text) };
        unsafe { ffi::silo_free(text.cast()) };
        Ok(made)
    }
}
