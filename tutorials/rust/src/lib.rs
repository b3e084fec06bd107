//! Networks that tec compiled to shared objects, from Rust.
//!
//! `tec compile net.onnx -o net.so` writes the library. This crate opens it with `dlopen`, so that building a program needs
//! neither the library nor its header, and depends on no other crate.
//!
//! ```no_run
//! let library = unsafe { tec_net::Library::open("./classifier.so") }?;
//! let mut net = library.net()?;
//! let x = [1.0f32, 2.0, 3.0, 4.0];
//! let results = net.run(&[tec_net::Tensor::new(&x, &[1, 4])])?;
//! let y: &[f32] = results.get(0)?.data()?;
//! # Ok::<(), tec_net::Error>(())
//! ```

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// What a call of the library had to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind of error: `TEC_INVALID` (1) to `TEC_FAILED` (5) of the header.
    pub status: i32,
    pub text: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

const INVALID: i32 = 1;

fn invalid(text: String) -> Error {
    Error { status: INVALID, text }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: c_int,
    id: i32,
}

/// An element type as DLPack writes it: a code, the bits of one number, and the lanes of a vector, which are 1 here.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// DLPack's tensor, as the library's header declares it.
#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

const HOST: Device = Device { kind: 1, id: 0 };

/// Rust types whose memory is an element of a tensor. `bool` is not one: its memory must hold 0 or 1, which a tensor does not
/// promise.
pub trait Element: Copy + sealed::Sealed {
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($t:ty: $code:literal),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType { code: $code, bits: 8 * std::mem::size_of::<$t>() as u8, lanes: 1 };
        }
    )*};
}

elements!(i8: 0, i16: 0, i32: 0, i64: 0, u8: 1, u16: 1, u32: 1, u64: 1, f32: 2, f64: 2);

/// An input: a slice in row-major order, and its sizes.
pub struct Tensor<'a> {
    data: *const c_void,
    count: usize,
    dtype: DType,
    shape: Vec<i64>,
    of: PhantomData<&'a ()>,
}

impl<'a> Tensor<'a> {
    pub fn new<T: Element>(data: &'a [T], shape: &[i64]) -> Self {
        Tensor { data: data.as_ptr().cast(), count: data.len(), dtype: T::DTYPE, shape: shape.to_vec(), of: PhantomData }
    }

    fn check(&self, index: usize) -> Result<(), Error> {
        let elements = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        match elements {
            Some(n) if n == self.count => Ok(()),
            _ => Err(invalid(format!("input {index}: {} elements do not make the shape {:?}", self.count, self.shape))),
        }
    }
}

/// The library's functions, found by name.
struct Functions {
    create: unsafe extern "C" fn(*const c_void, *const c_void, *mut *mut c_void) -> i32,
    destroy: unsafe extern "C" fn(*mut c_void),
    error: unsafe extern "C" fn(*const c_void) -> *const c_char,
    output_count: unsafe extern "C" fn(*const c_void) -> i32,
    run: unsafe extern "C" fn(*mut c_void, *const *const DLTensor, i32, *const *mut DLTensor, i32) -> i32,
    result: unsafe extern "C" fn(*mut c_void, i32, *mut DLTensor) -> i32,
}

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(handle: *mut c_void) -> c_int;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// An open library. It is closed when the last of its nets and this value are gone.
#[derive(Clone)]
pub struct Library(Arc<Opened>);

struct Opened {
    functions: Functions,
    _handle: Handle,
}

// The library has no state beside its nets.
unsafe impl Send for Opened {}
unsafe impl Sync for Opened {}

struct Handle(*mut c_void);

impl Handle {
    /// The address of a function as a pointer of type `F`, which must be the function's.
    unsafe fn function<F>(&self, name: &CStr) -> Result<F, Error> {
        let found = dlsym(self.0, name.as_ptr());
        if found.is_null() {
            return Err(invalid(format!("the library has no {}: was it written by tec?", name.to_string_lossy())));
        }
        Ok(std::mem::transmute_copy(&found))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { dlclose(self.0) };
    }
}

impl Library {
    /// Opens the shared object at `path`. A path without a slash is looked for as `dlopen` does.
    ///
    /// # Safety
    /// The file must be a library that tec wrote. Opening any other runs its constructors, and its functions may have other types.
    pub unsafe fn open(path: impl Into<Vec<u8>>) -> Result<Library, Error> {
        let path = CString::new(path).map_err(|_| invalid("the path has a NUL in it".into()))?;
        unsafe {
            let opened = dlopen(path.as_ptr(), RTLD_NOW);
            if opened.is_null() {
                return Err(invalid(text(dlerror())));
            }
            let handle = Handle(opened);
            let functions = Functions {
                create: handle.function(c"tec_net_create")?,
                destroy: handle.function(c"tec_net_destroy")?,
                error: handle.function(c"tec_net_error")?,
                output_count: handle.function(c"tec_net_output_count")?,
                run: handle.function(c"tec_net_run")?,
                result: handle.function(c"tec_net_result")?,
            };
            Ok(Library(Arc::new(Opened { functions, _handle: handle })))
        }
    }

    /// A net with working memory of its own. Make one for each thread.
    pub fn net(&self) -> Result<Net, Error> {
        let mut net = Net { net: std::ptr::null_mut(), library: self.0.clone() };
        let status = unsafe { (self.0.functions.create)(std::ptr::null(), std::ptr::null(), &mut net.net) };
        net.check(status)?;
        Ok(net)
    }
}

unsafe fn text(words: *const c_char) -> String {
    if words.is_null() {
        return String::new();
    }
    CStr::from_ptr(words).to_string_lossy().into_owned()
}

/// A network that can run.
pub struct Net {
    net: *mut c_void,
    library: Arc<Opened>,
}

// A net may move to another thread. It is not Sync: calls on one net would wait for each other.
unsafe impl Send for Net {}

impl Net {
    fn check(&self, status: i32) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        Err(Error { status, text: unsafe { text((self.library.functions.error)(self.net)) } })
    }

    /// Runs the network on inputs in the order of the header. The results borrow the net, since its next run overwrites them.
    pub fn run(&mut self, inputs: &[Tensor<'_>]) -> Result<Results<'_>, Error> {
        for (k, input) in inputs.iter().enumerate() {
            input.check(k)?;
        }
        let tensors: Vec<DLTensor> = inputs
            .iter()
            .map(|t| DLTensor {
                data: t.data.cast_mut(),
                device: HOST,
                ndim: t.shape.len() as i32,
                dtype: t.dtype,
                shape: t.shape.as_ptr().cast_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            })
            .collect();
        let rows: Vec<*const DLTensor> = tensors.iter().map(|t| t as *const DLTensor).collect();
        let status = unsafe { (self.library.functions.run)(self.net, rows.as_ptr(), rows.len() as i32, std::ptr::null(), 0) };
        self.check(status)?;
        Ok(Results { net: self })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        unsafe { (self.library.functions.destroy)(self.net) };
    }
}

/// The outputs of the last run, in the net's memory.
pub struct Results<'a> {
    net: &'a Net,
}

impl<'a> Results<'a> {
    pub fn count(&self) -> usize {
        unsafe { (self.net.library.functions.output_count)(self.net.net) as usize }
    }

    /// Output `index`, in the order of the header.
    pub fn get(&self, index: usize) -> Result<Output<'a>, Error> {
        let at = i32::try_from(index).map_err(|_| invalid(format!("there is no output {index}")))?;
        let mut tensor = MaybeUninit::<DLTensor>::uninit();
        let tensor = unsafe {
            self.net.check((self.net.library.functions.result)(self.net.net, at, tensor.as_mut_ptr()))?;
            tensor.assume_init()
        };
        if tensor.device.kind != HOST.kind {
            return Err(invalid(format!("output {index} lies on a GPU: compile for a CPU, or copy it in C")));
        }
        Ok(Output { tensor, of: PhantomData })
    }
}

/// One output.
pub struct Output<'a> {
    tensor: DLTensor,
    of: PhantomData<&'a Net>,
}

impl<'a> Output<'a> {
    pub fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    pub fn shape(&self) -> &'a [i64] {
        match self.tensor.ndim {
            0 => &[],
            n => unsafe { std::slice::from_raw_parts(self.tensor.shape, n as usize) },
        }
    }

    /// The elements in row-major order. `T` must be the output's type.
    pub fn data<T: Element>(&self) -> Result<&'a [T], Error> {
        if self.tensor.dtype != T::DTYPE {
            return Err(invalid(format!("the output's elements are {:?}, not {:?}", self.tensor.dtype, T::DTYPE)));
        }
        let count = self.shape().iter().product::<i64>() as usize;
        if count == 0 {
            return Ok(&[]);
        }
        let first = unsafe { self.tensor.data.byte_add(self.tensor.byte_offset as usize) };
        Ok(unsafe { std::slice::from_raw_parts(first.cast(), count) })
    }
}
