//! A WASM component in Rust, without a crate: the host reads files, this counts words. Build it with build.sh.

use std::alloc::{alloc, realloc, Layout};

#[repr(C)]
pub struct Answer {
    is_error: u8,
    at: *const u8,
    length: usize,
}

#[link(wasm_import_module = "pi:extension/host")]
extern "C" {
    #[link_name = "call"]
    fn host_call(name: *const u8, name_length: usize, input: *const u8, input_length: usize, answer: *mut Answer);
}

/// Memory for what the host hands over; the functions below own it from then on.
#[export_name = "cabi_realloc"]
pub unsafe extern "C" fn cabi_realloc(old: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
    if size == 0 {
        return align as *mut u8;
    }
    if old_size == 0 {
        return alloc(Layout::from_size_align_unchecked(size, align));
    }
    realloc(old, Layout::from_size_align_unchecked(old_size, align), size)
}

unsafe fn owned(at: *mut u8, length: usize) -> String {
    if length == 0 {
        return String::new();
    }
    String::from_utf8(Vec::from_raw_parts(at, length, length)).unwrap_or_default()
}

fn give(result: Result<String, String>) -> *mut Answer {
    let (is_error, text) = match result {
        Ok(text) => (0, text),
        Err(text) => (1, text),
    };
    let text = text.into_bytes().into_boxed_slice();
    let length = text.len();
    let at = Box::into_raw(text) as *const u8;
    Box::into_raw(Box::new(Answer { is_error, at, length }))
}

unsafe fn drop_answer(answer: *mut Answer) {
    let answer = Box::from_raw(answer);
    drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(answer.at as *mut u8, answer.length)));
}

fn call(name: &str, input: &str) -> Result<String, String> {
    let mut answer = Answer { is_error: 0, at: std::ptr::null(), length: 0 };
    unsafe {
        host_call(name.as_ptr(), name.len(), input.as_ptr(), input.len(), &mut answer);
        let text = owned(answer.at as *mut u8, answer.length);
        if answer.is_error == 0 { Ok(text) } else { Err(text) }
    }
}

const REGISTRATION: &str = r#"{"name":"NAME","version":"0.1.0","api_version":"1.0",
 "tools":[{"name":"count_words","description":"Count the words of a file in the project",
   "parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}],
 "slash_commands":[{"name":"hello","description":"Say hello"}],
 "event_hooks":["session_start"]}"#;

fn count_words(input: &str) -> Result<String, String> {
    // {"path": …} becomes {"op":"read","encoding":"utf8","path": …}, and the answer is {"text":"…"}.
    let request = format!(r#"{{"op":"read","encoding":"utf8",{}"#, &input[1..]);
    let answer = call("fs", &request)?;
    let text = answer.strip_prefix(r#"{"text":""#).and_then(|rest| rest.strip_suffix(r#""}"#)).unwrap_or("");
    let words = text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ").split_whitespace().count();
    Ok(format!(r#"{{"content":[{{"type":"text","text":"{words} words"}}],"details":{{"words":{words}}}}}"#))
}

#[export_name = "init"]
pub unsafe extern "C" fn init(manifest: *mut u8, length: usize) -> *mut Answer {
    owned(manifest, length);
    give(Ok(REGISTRATION.into()))
}

#[export_name = "handle-tool"]
pub unsafe extern "C" fn tool(name: *mut u8, name_length: usize, input: *mut u8, length: usize) -> *mut Answer {
    let (name, input) = (owned(name, name_length), owned(input, length));
    give(if name == "count_words" { count_words(&input) } else { Err("\"There is no such tool.\"".into()) })
}

#[export_name = "handle-slash"]
pub unsafe extern "C" fn slash(
    command: *mut u8, command_length: usize, words: *mut [usize; 2], count: usize, input: *mut u8, length: usize,
) -> *mut Answer {
    owned(command, command_length);
    owned(input, length);
    if count > 0 {
        for [at, size] in Vec::from_raw_parts(words, count, count) {
            owned(at as *mut u8, size);
        }
    }
    give(Ok(r#"{"output":{"text":"Hello from Rust"},"is_error":false}"#.into()))
}

#[export_name = "handle-event"]
pub unsafe extern "C" fn event(event: *mut u8, length: usize) -> *mut Answer {
    owned(event, length);
    give(Ok(String::new()))
}

#[export_name = "shutdown"]
pub extern "C" fn shutdown() {}

#[export_name = "cabi_post_init"]
pub unsafe extern "C" fn post_init(answer: *mut Answer) {
    drop_answer(answer);
}
#[export_name = "cabi_post_handle-tool"]
pub unsafe extern "C" fn post_tool(answer: *mut Answer) {
    drop_answer(answer);
}
#[export_name = "cabi_post_handle-slash"]
pub unsafe extern "C" fn post_slash(answer: *mut Answer) {
    drop_answer(answer);
}
#[export_name = "cabi_post_handle-event"]
pub unsafe extern "C" fn post_event(answer: *mut Answer) {
    drop_answer(answer);
}
