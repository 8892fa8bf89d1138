/* spec/fuzzers/idx.c -- libFuzzer target: mt.data.idx gives a tensor that fits its file, or
** nil and a message. An input that begins with 'Z' is packed by gzip first, since a
** fuzzer does not find checksums. */
#include "spec/fuzzers/reader.h"

#include <zlib.h>

static const char code[] =
    "local mt = require 'mytensor'\n"
    "return function(path)\n"
    "  local t, message = mt.data.idx(path)\n"
    "  if not t then assert(type(message) == 'string' and #message > 0) return end\n"
    "  local file = assert(io.open(path, 'rb'))\n"
    "  local size = file:seek 'end'\n"
    "  file:seek 'set'\n"
    "  local packed = file:read(2) == '\\x1f\\x8b'\n"
    "  file:close()\n"
    "  local bytes = t:numel() * t:element_size()\n"
    "  assert(packed or size == 4 + 4 * t:dim() + bytes, 'size')\n"
    "  assert(#tostring(t) > 0)\n"
    "  local _ = t:sum():item()\n"
    "end\n";

static size_t pack(const uint8_t *data, size_t size, uint8_t *out, size_t room) {
  z_stream z = {0};
  if (deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    stop("deflate");
  z.next_in = (uint8_t *)(uintptr_t)data, z.avail_in = (uInt)size;
  z.next_out = out, z.avail_out = (uInt)room;
  const int done = deflate(&z, Z_FINISH);
  deflateEnd(&z);
  return done == Z_STREAM_END ? z.total_out : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t packed[1 << 17];
  if (L == NULL) open_reader(code);
  if (size > 0 && data[0] == 'Z' && size < sizeof packed / 2) {
    size = pack(data + 1, size - 1, packed, sizeof packed);
    data = packed;
  }
  read_file(data, size);
  return 0;
}
