//! The structs and functions of silo.h that this crate uses, declared by hand. The sizes of structs and the offsets of
//! fields are checked twice: here, and by layout.c, which compares the same numbers with silo.h.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

#[repr(C)]
pub struct Error {
    pub code: i32,
    pub driver_code: i32,
    pub offset: u64,
    pub field: [c_char; 128],
    pub text: [c_char; 1024],
    pub details: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Value {
    pub pointer: *mut c_void,
    pub integer: i64,
    pub real: f64,
    pub text: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Argument {
    pub kind: u8,
    pub flags: u8,
    pub element: u16,
    pub rank: i32,
    pub value: Value,
    pub shape: *const i64,
    pub strides: *const i64,
    pub block: *const i64,
}

pub const POINTER: u8 = 1;
pub const INT: u8 = 4;
pub const BOOL: u8 = 5;
pub const FLOAT: u8 = 6;
pub const TEXT: u8 = 8;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Queue {
    pub device: i32,
    pub index: i32,
    pub stream: *mut c_void,
}

pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
pub const ROCM: i32 = 10;

#[repr(C)]
pub struct HostCode {
    pub bundle: *const c_char,
    pub kernel: *const c_char,
    pub identity: *const c_char,
    pub sha256: *const c_char,
    pub digest: *const c_char,
    pub data: *const c_void,
    pub bytes: usize,
}

#[repr(C)]
pub struct Options {
    pub size: usize,
    pub flags: u32,
    pub reserved: u32,
    pub context: *mut c_void,
    pub file_memory: usize,
    pub vouch: Option<unsafe extern "C" fn(*mut c_void, *const HostCode) -> c_int>,
    pub log: Option<unsafe extern "C" fn(*mut c_void, c_int, *const c_char)>,
    pub allocate: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut *mut c_void) -> c_int>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void)>,
    pub cuda_library: *const c_char,
    pub hip_library: *const c_char,
}

/// The opaque types `silo_bundle` and `silo_kernel`: only pointers to them are used.
#[repr(C)]
pub struct Bundle {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Kernel {
    _private: [u8; 0],
}

extern "C" {
    pub fn silo_version() -> *const c_char;
    pub fn silo_error_clear(error: *mut Error);
    pub fn silo_code_name(code: c_int) -> *const c_char;
    pub fn silo_open(
        path: *const c_char,
        options: *const Options,
        bundle: *mut *mut Bundle,
        error: *mut Error,
    ) -> c_int;
    pub fn silo_close(bundle: *mut Bundle);
    pub fn silo_identity(bundle: *const Bundle) -> *const c_char;
    pub fn silo_kernel_name(bundle: *const Bundle, index: usize) -> *const c_char;
    pub fn silo_find(bundle: *mut Bundle, name: *const c_char, kernel: *mut *mut Kernel, error: *mut Error) -> c_int;
    pub fn silo_launch(
        kernel: *mut Kernel,
        queue: *const Queue,
        arguments: *const Argument,
        count: usize,
        call: *const c_void,
        error: *mut Error,
    ) -> c_int;
    pub fn silo_explain(
        kernel: *mut Kernel,
        queue: *const Queue,
        arguments: *const Argument,
        count: usize,
        call: *const c_void,
        text: *mut *mut c_char,
        error: *mut Error,
    ) -> c_int;
    pub fn silo_free(memory: *mut c_void);
}

const _: () = {
    assert!(size_of::<Error>() == 1176);
    assert!(offset_of!(Error, driver_code) == 4);
    assert!(offset_of!(Error, offset) == 8);
    assert!(offset_of!(Error, field) == 16);
    assert!(offset_of!(Error, text) == 144);
    assert!(offset_of!(Error, details) == 1168);
    assert!(size_of::<Argument>() == 40);
    assert!(offset_of!(Argument, flags) == 1);
    assert!(offset_of!(Argument, element) == 2);
    assert!(offset_of!(Argument, rank) == 4);
    assert!(offset_of!(Argument, value) == 8);
    assert!(offset_of!(Argument, shape) == 16);
    assert!(offset_of!(Argument, strides) == 24);
    assert!(offset_of!(Argument, block) == 32);
    assert!(size_of::<Queue>() == 16);
    assert!(offset_of!(Queue, index) == 4);
    assert!(offset_of!(Queue, stream) == 8);
    assert!(size_of::<HostCode>() == 56);
    assert!(offset_of!(HostCode, identity) == 16);
    assert!(offset_of!(HostCode, sha256) == 24);
    assert!(offset_of!(HostCode, digest) == 32);
    assert!(offset_of!(HostCode, data) == 40);
    assert!(offset_of!(HostCode, bytes) == 48);
    assert!(size_of::<Options>() == 80);
    assert!(offset_of!(Options, flags) == 8);
    assert!(offset_of!(Options, context) == 16);
    assert!(offset_of!(Options, file_memory) == 24);
    assert!(offset_of!(Options, vouch) == 32);
    assert!(offset_of!(Options, log) == 40);
    assert!(offset_of!(Options, allocate) == 48);
    assert!(offset_of!(Options, release) == 56);
    assert!(offset_of!(Options, cuda_library) == 64);
    assert!(offset_of!(Options, hip_library) == 72);
};
