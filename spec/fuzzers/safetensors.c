/* spec/fuzzers/safetensors.c -- libFuzzer target: mt.load_tensors gives tensors that fit the
** file, or nil and a message; what it gives can be saved and is the same when loaded.
** Of an input that begins with 'H' the rest up to a zero byte is the header, whose length
** is put before it, since a fuzzer rarely keeps the two in step. */
#include "spec/fuzzers/reader.h"

static const char code[] =
    "local mt = require 'mytensor'\n"
    "local other = os.tmpname()\n"
    "local function bytes_of(tensors)\n"
    "  local bytes = 0\n"
    "  for name, t in pairs(tensors) do\n"
    "    assert(type(name) == 'string' and #tostring(t) > 0)\n"
    "    bytes = bytes + t:numel() * t:element_size()\n"
    "  end\n"
    "  return bytes\n"
    "end\n"
    "return function(path)\n"
    "  local tensors, metadata = mt.load_tensors(path)\n"
    "  if not tensors then\n"
    "    assert(type(metadata) == 'string' and #metadata > 0)\n"
    "    return\n"
    "  end\n"
    "  local file = assert(io.open(path, 'rb'))\n"
    "  local length = ('<I8'):unpack(file:read(8))\n"
    "  assert(file:seek 'end' == 8 + length + bytes_of(tensors), 'size')\n"
    "  file:close()\n"
    "  for name in pairs(tensors) do if not utf8.len(name) then return end end\n"
    "  for k, v in pairs(metadata) do\n"
    "    if not (utf8.len(k) and utf8.len(v)) then return end\n"
    "  end\n"
    "  assert(mt.save_tensors(other, tensors, metadata))\n"
    "  local again, same = assert(mt.load_tensors(other))\n"
    "  for name, t in pairs(tensors) do\n"
    "    local u = again[name]\n"
    "    assert(u:dtype() == t:dtype() and mt._to_bytes(u) == mt._to_bytes(t), name)\n"
    "    assert(table.concat(u:shape(), ' ') == table.concat(t:shape(), ' '), name)\n"
    "  end\n"
    "  for k, v in pairs(metadata) do assert(same[k] == v, k) end\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t built[1 << 16];
  if (L == NULL) open_reader(code);
  if (size > 0 && data[0] == 'H' && size + 8 < sizeof built) {
    const uint8_t *zero = memchr(data, 0, size);
    const size_t length = (zero != NULL ? (size_t)(zero - data) : size) - 1;
    const size_t rest = zero != NULL ? size - length - 2 : 0;
    for (size_t i = 0; i < 8; i++) built[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(built + 8, data + 1, length);
    if (rest > 0) memcpy(built + 8 + length, zero + 1, rest);
    data = built;
    size = 8 + length + rest;
  }
  read_file(data, size);
  return 0;
}
