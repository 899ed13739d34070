/* A WASM component in C, without a library: the host reads files, this counts words. Build it with build.sh. */

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef unsigned long size;

struct result {
  unsigned char is_error;
  const char *at;
  size length;
};

IMPORT("pi:extension/host", "call")
void host_call(const char *name, size name_length, const char *input, size input_length, struct result *answer);

/* Memory for what the host hands over; each call begins with an empty heap. */
static char heap[1 << 20];
static size used;

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, size old_size, size align, size new_size) {
  size at = (used + align - 1) / align * align;
  if (at + new_size > sizeof heap) __builtin_trap();
  used = at + new_size;
  char *fresh = heap + at, *before = old;
  for (size i = 0; i < old_size && i < new_size; i++) fresh[i] = before[i];
  return fresh;
}

static struct result answer;

static struct result *give(unsigned char is_error, const char *at, size length) {
  answer.is_error = is_error;
  answer.at = at;
  answer.length = length;
  return &answer;
}

#define TEXT(literal) (literal), sizeof(literal) - 1
#define GIVE(literal) give(0, TEXT(literal))

static char *put(char *to, const char *from, size length) {
  for (size i = 0; i < length; i++) to[i] = from[i];
  return to + length;
}

static char *put_number(char *to, unsigned value) {
  char digits[10];
  int count = 0;
  do digits[count++] = '0' + value % 10; while (value /= 10);
  while (count) *to++ = digits[--count];
  return to;
}

/* Words of a JSON text: an escaped line break or tab ends one, as a space does. */
static unsigned words_of(const char *at, size length) {
  unsigned count = 0;
  int inside = 0;
  for (size i = 0; i < length; i++) {
    int space = at[i] == ' ';
    if (at[i] == '\\' && i + 1 < length && (at[i + 1] == 'n' || at[i + 1] == 't' || at[i + 1] == 'r')) {
      space = 1;
      i++;
    }
    if (!space && !inside) count++;
    inside = !space;
  }
  return count;
}

EXPORT("init")
struct result *init(const char *manifest, size length) {
  return GIVE(
      "{\"name\":\"NAME\",\"version\":\"0.1.0\",\"api_version\":\"1.0\",\"tools\":[{\"name\":\"count_words\","
      "\"description\":\"Count the words of a file in the project\",\"parameters\":{\"type\":\"object\","
      "\"properties\":{\"path\":{\"type\":\"string\"}},\"required\":[\"path\"]}}],"
      "\"slash_commands\":[{\"name\":\"hello\",\"description\":\"Say hello\"}],\"event_hooks\":[\"session_start\"]}");
}

EXPORT("handle-tool")
struct result *handle_tool(const char *name, size name_length, const char *input, size input_length) {
  static char request[65536], text[128];
  struct result read;
  if (input_length > 60000) return give(1, TEXT("\"The input is too long.\""));
  /* {"path": …} becomes {"op":"read","encoding":"utf8","path": …} */
  char *end = put(request, TEXT("{\"op\":\"read\",\"encoding\":\"utf8\","));
  end = put(end, input + 1, input_length - 1);
  host_call(TEXT("fs"), request, end - request, &read);
  if (read.is_error) return give(1, read.at, read.length);
  /* {"text":"…"} */
  unsigned count = read.length > 11 ? words_of(read.at + 9, read.length - 11) : 0;
  end = put(text, TEXT("{\"content\":[{\"type\":\"text\",\"text\":\""));
  end = put_number(end, count);
  end = put(end, TEXT(" words\"}],\"details\":{\"words\":"));
  end = put_number(end, count);
  end = put(end, TEXT("}}"));
  return give(0, text, end - text);
}

EXPORT("handle-slash")
struct result *handle_slash(const char *command, size command_length, void *args, size count, const char *input, size length) {
  return GIVE("{\"output\":{\"text\":\"Hello from C\"},\"is_error\":false}");
}

EXPORT("handle-event")
struct result *handle_event(const char *event, size length) { return GIVE(""); }

EXPORT("shutdown")
void stop(void) {}

static void empty(void) { used = 0; }
EXPORT("cabi_post_init") void post_init(void *result) { empty(); }
EXPORT("cabi_post_handle-tool") void post_tool(void *result) { empty(); }
EXPORT("cabi_post_handle-slash") void post_slash(void *result) { empty(); }
EXPORT("cabi_post_handle-event") void post_event(void *result) { empty(); }
