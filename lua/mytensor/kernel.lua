-- lua/mytensor/kernel.lua: mt.cuda.kernel{source = ...}: reads a kernel's parameters
-- out of CUDA source, and tells the compiler's messages with lines of the script.

local mt = require "mytensor"

-- ---- reading CUDA source ------------------------------------------------------------

local function blank(text) return (text:gsub("[^\n]", " ")) end

-- The last character of the string or character constant that begins with the quote at
-- from: it ends with its line at the latest.
local function end_of_quoted(source, from)
  local delimiter = source:sub(from - 1, from):find 'R"'
    and source:match('^"([^%s()\\]*)%(', from)
  if delimiter then -- a raw string, maybe of several lines
    return select(2, source:find(")" .. delimiter .. '"', from, true)) or #source
  end
  local quote, to = source:sub(from, from), from + 1
  while true do
    to = source:find('["\'\\\n]', to) or #source + 1
    local c = source:sub(to, to)
    if c == quote then return to end
    if c == "" or c == "\n" then return to - 1 end
    to = to + (c == "\\" and 2 or 1)
  end
end

-- The last character of the comment of one line that begins at from; a line that ends
-- in \ goes on.
local function end_of_line_comment(source, from)
  local to = from
  repeat
    to = source:find("\n", to + 1, true) or #source + 1
  until to > #source or not source:sub(from, to - 1):find "\\\r?$"
  return to - 1
end

-- The source with blanks for comments, strings and characters: all else stays where it
-- is.
local function without_comments(source)
  local out, at = {}, 1
  while true do
    local from = source:find("[/\"']", at)
    if not from then break end
    out[#out + 1] = source:sub(at, from - 1)
    local two, to = source:sub(from, from + 1), nil
    if two == "//" then
      to = end_of_line_comment(source, from)
    elseif two == "/*" then
      to = select(2, source:find("*/", from + 2, true)) or #source
    elseif source:sub(from, from) ~= "/"
      and not (two:find "^'%w"
        and source:sub(math.max(1, from - 64), from - 1):find "%f[%w_'.]%d[%w_'.]*$")
    then
      to = end_of_quoted(source, from)
    end
    if not to then -- a division, or the ' between digits
      out[#out + 1] = source:sub(from, from)
      to = from
    elseif source:sub(from, to) == '"C"' then
      out[#out + 1] = '"C"' -- of extern "C"
    else
      out[#out + 1] = blank(source:sub(from, to))
    end
    at = to + 1
  end
  out[#out + 1] = source:sub(at)
  return table.concat(out)
end

-- The same with blanks for the lines of the preprocessor.
local function without_directives(text)
  local continued = false
  return (text:gsub("([^\n]*)(\n?)", function(line, newline)
    local directive = continued or line:find "^%s*#" ~= nil
    continued = directive and line:find "\\%s*$" ~= nil
    return (directive and blank(line) or line) .. newline
  end))
end

-- What may stand between __global__ and the name, with parentheses.
local ATTRIBUTES = { __launch_bounds__ = true, __cluster_dims__ = true,
  __maxnreg__ = true, __block_size__ = true, __attribute__ = true }

-- The kernels of a source without comments: list of {name=, parameters=, prefix=, at=,
-- list_at=}, at and list_at where the declaration and the list of parameters begin,
-- prefix what stands before __global__.
local function find_kernels(text)
  local list, at = {}, 1
  while true do
    local from, to = text:find("%f[%w_]__global__%f[^%w_]", at)
    if not from then return list end
    at = to + 1
    local name, parameters, list_at
    repeat
      local word, next_at = text:match("^%s*([%a_][%w_]*)()", at)
      if not word then break end
      local list_text, after = text:match("^%s*(%b())()", next_at)
      at = list_text and after or next_at
      if list_text and not ATTRIBUTES[word] then
        name, parameters, list_at = word, list_text:sub(2, -2), next_at
      end
    until name
    if name then
      local before = text:sub(1, from - 1):match "^.*[;{}]()" or 1
      before = text:match("^%s*()", before)
      list[#list + 1] = { name = name, parameters = parameters, at = before,
        list_at = list_at, prefix = text:sub(before, from - 1) }
    end
  end
end

-- ---- types --------------------------------------------------------------------------

local INTEGERS = { char = "int8", short = "int16", int = "int32", long = "int64" }
local NAMED = {
  float = { "float32" }, double = { "float64" }, bool = { "bool" }, void = { "void" },
  half = { "float16" }, __half = { "float16" }, __nv_bfloat16 = { "bfloat16" },
  nv_bfloat16 = { "bfloat16" }, int8_t = { "int8" }, int16_t = { "int16" },
  int32_t = { "int32" }, int64_t = { "int64" }, uint8_t = { "uint8" },
  uint16_t = { "int16", unsigned = true }, uint32_t = { "int32", unsigned = true },
  uint64_t = { "int64", unsigned = true }, size_t = { "int64", unsigned = true },
  ptrdiff_t = { "int64" }, intptr_t = { "int64" },
  half2 = { "float16", width = 2 }, __half2 = { "float16", width = 2 },
  __nv_bfloat162 = { "bfloat16", width = 2 }, nv_bfloat162 = { "bfloat16", width = 2 },
}
for element, dtype in pairs { float = "float32", double = "float64", int = "int32",
  longlong = "int64", short = "int16", char = "int8", uchar = "uint8" } do
  for width = 2, 4 do NAMED[element .. width] = { dtype, width = width } end
end

-- Words that say nothing about the type.
local SILENT = { __restrict__ = true, __restrict = true, restrict = true,
  volatile = true, __grid_constant__ = true, struct = true, signed = true }

-- Words that are no parameter's name.
local KEYWORDS = { unsigned = true, signed = true, float = true, double = true,
  bool = true, void = true, const = true, char = true, short = true, int = true,
  long = true }

-- The type of a list of words: char, short, int, long and their signs, or one name.
local function type_of_words(words)
  local unsigned, base, longs, name = false, nil, 0, nil
  for _, word in ipairs(words) do
    if word == "unsigned" then
      unsigned = true
    elseif word == "long" then
      longs = longs + 1
    elseif INTEGERS[word] then
      if not base or base == "int" then base = word end
    else
      name = word
    end
  end
  if name == "double" and longs > 0 then return nil end
  if name then return NAMED[name] end
  if longs > 0 then base = "long" end
  base = base or (unsigned and "int")
  if not base then return nil end
  if unsigned and base == "char" then return { "uint8" } end
  return { INTEGERS[base], unsigned = unsigned }
end

-- What typedef, using, #define and -D call by a name of their own.
local function find_aliases(text, options)
  local aliases = {}
  text = text:gsub("[ \t\r]+", " "):gsub("%s*\n%s*", "\n") -- long blanks cost n^2
  for old, new in text:gmatch "%f[%w_]typedef%s+([%w_][%w_%s]-)%s+([%a_][%w_]*)%s*;" do
    aliases[new] = old
  end
  for new, old in
    text:gmatch "%f[%w_]using%s+([%a_][%w_]*)%s*=%s*([%w_][%w_%s]-)%s*;" do
    aliases[new] = old
  end
  for new, old in text:gmatch "#[ \t]*define[ \t]+([%a_][%w_]*)[ \t]+([%w_][%w_ ]*)" do
    aliases[new] = old
  end
  for _, option in ipairs(options) do
    local new, old = option:match "^%-D([%a_][%w_]*)=([%w_][%w_ ]*)$"
    if new then aliases[new] = old end
  end
  return aliases
end

-- The words that a word stands for, by typedef and the like.
local function expand(words, word, aliases, depth)
  if not aliases[word] or depth > 8 or NAMED[word] then
    words[#words + 1] = word
    return
  end
  for inner in aliases[word]:gmatch "[%w_]+" do
    expand(words, inner, aliases, depth + 1)
  end
end

local function is_qualifier(word) return word == "const" or SILENT[word] ~= nil end

-- The words of a declaration's type, with aliases replaced: a name that follows a type
-- is the parameter's own, be it called half.
local function words_of_type(text, aliases)
  local words, typed = {}, false
  for word in text:gmatch "[%w_]+" do
    local from, own = #words + 1, typed and not KEYWORDS[word]
    expand(words, word, aliases, 1)
    local qualifies = true
    for i = from, #words do qualifies = qualifies and is_qualifier(words[i]) end
    if own and not qualifies then
      for i = #words, from, -1 do words[i] = nil end
    end
    typed = typed or word == "signed" or not qualifies
  end
  return words
end

-- One parameter: {type=, pointer=, constant=, unsigned=, width=, text=}; or nil, its
-- text and why.
local function read_parameter(declaration, aliases)
  local text = declaration:gsub("%s+", " "):match "^ ?(.-) ?$"
  local plain = text:gsub("%f[%w_]nvcuda::", ""):gsub("%f[%w_]std::", "")
    :gsub("%s*=.*$", ""):gsub("%[%[.-%]%]", "")
  if plain:find "%[" then plain = plain:gsub("([%a_][%w_]*)%s*%[.*%]", "*%1") end
  if plain:find "[^%w_%s%*]" then return nil, text, "only plain types can be passed" end
  local before, stars = plain:match "^([^%*]*)(.*)$"
  local pointer = stars ~= ""
  if select(2, stars:gsub("%*", "")) > 1 then
    return nil, text, "pointers to pointers cannot be passed"
  end
  local kept, constant = {}, false
  for _, word in ipairs(words_of_type(before, aliases)) do
    if word == "const" then
      constant = true
    elseif not SILENT[word] then
      kept[#kept + 1] = word
    end
  end
  local is_signed = before:find "%f[%w_]signed%f[^%w_]" ~= nil
  if #kept == 0 and is_signed then kept[1] = "int" end
  local found = type_of_words(kept)
  if not found then
    return nil, text, ("unknown type '%s'"):format(table.concat(kept, " "))
  end
  if not pointer and (found[1] == "void" or found.width) then
    return nil, text, "only numbers and pointers can be passed"
  end
  return { type = found[1], pointer = pointer, constant = constant,
    unsigned = found.unsigned or false, width = found.width or 1, text = text }
end

-- The parts between commas that stand outside of brackets; < and > are brackets but in
-- the value behind a =.
local function split(text)
  local list, depth, from = {}, 0, 1
  for at, c in text:gmatch "()([%(%)<>%[%],])" do
    local compares = c:find "[<>]" and text:sub(from, at):find("=", 1, true)
    if compares then -- luacheck: ignore
    elseif c == "," then
      if depth == 0 then
        list[#list + 1] = text:sub(from, at - 1)
        from = at + 1
      end
    else
      depth = depth + ((c == "(" or c == "<" or c == "[") and 1 or -1)
    end
  end
  list[#list + 1] = text:sub(from)
  return list
end

local function read_signature(name, text, aliases)
  local list = {}
  if text:find "^%s*$" or text:find "^%s*void%s*$" then return list end
  for i, declaration in ipairs(split(text)) do
    local p, shown, why = read_parameter(declaration, aliases)
    if not p then
      error(("mt.cuda.kernel: %s: parameter %d, '%s': %s; there are numbers (int, "
        .. "int64_t, float, double, bool, half, ...) and pointers to them or to void; "
        .. "signature = \"...\" tells what a macro or a type of your own stands for")
        :format(name, i, shown, why), 0)
    end
    list[i] = p
  end
  return list
end

-- ---- options ------------------------------------------------------------------------

local KNOWN = { source = "string", name = "string", signature = "string",
  options = "table", grid = true, block = true, shared = true }

local function check_shape(key, value)
  local kind = type(value)
  if value ~= nil and kind ~= "number" and kind ~= "table" and kind ~= "function" then
    error(("mt.cuda.kernel: %s: number, list of up to three, or function expected, "
      .. "got %s"):format(key, kind), 0)
  end
end

local function check_options(o)
  if type(o) ~= "table" then
    error(("mt.cuda.kernel: table with source expected, got %s"):format(type(o)), 0)
  end
  for key, value in pairs(o) do
    local wanted = KNOWN[key]
    if not wanted then
      error(("mt.cuda.kernel: unknown option '%s'; there are source, name, grid, "
        .. "block, shared, signature, options"):format(tostring(key)), 0)
    end
    if wanted ~= true and type(value) ~= wanted then
      error(("mt.cuda.kernel: %s: %s expected, got %s"):format(key, wanted,
        type(value)), 0)
    end
  end
  if not o.source then error("mt.cuda.kernel: source = [[...]] is missing", 0) end
  if o.source:find "\0" then
    error("mt.cuda.kernel: the source holds a zero byte", 0)
  end
  for _, key in ipairs { "grid", "block", "shared" } do check_shape(key, o[key]) end
  local options = {}
  for i, option in ipairs(o.options or {}) do
    if type(option) ~= "string" then
      error(("mt.cuda.kernel: options[%d]: string expected, got %s"):format(i,
        type(option)), 0)
    elseif option:find "\0" then
      error(("mt.cuda.kernel: options[%d] holds a zero byte"):format(i), 0)
    end
    options[i] = option
  end
  return options
end

local function names_of(kernels)
  local names = {}
  for i, k in ipairs(kernels) do names[i] = k.name end
  return #names > 0 and "there are: " .. table.concat(names, ", ")
    or "it has no __global__ function"
end

local function choose(kernels, name)
  if not name then
    local last, same = kernels[#kernels], true
    for _, k in ipairs(kernels) do same = same and k.name == last.name end
    if last and same then return last end -- declared before, maybe
    error("mt.cuda.kernel: name = ... must say which kernel of the source is meant; "
      .. names_of(kernels), 0)
  end
  local found
  for _, k in ipairs(kernels) do
    if k.name == name then found = k end -- the last is the definition
  end
  if found then return found end
  error(("mt.cuda.kernel: the source has no kernel '%s'; %s"):format(name,
    names_of(kernels)), 0)
end

-- The source with every chosen kernel under its plain name.
local function with_plain_names(source, kernels, name)
  for i = #kernels, 1, -1 do
    local k = kernels[i]
    if k.name == name and not k.prefix:find "%f[%w_]extern%f[^%w_]" then
      if k.prefix:find "%f[%w_]template%f[^%w_]" then
        error(("mt.cuda.kernel: %s is a template: write a __global__ function for the "
          .. "types that you need, which calls it as a __device__ function")
          :format(name), 0)
      end
      local head = source:sub(k.at, k.list_at - 1):gsub("%f[%w_]static%f[^%w_]", blank)
      source = source:sub(1, k.at - 1) .. 'extern "C" ' .. head
        .. source:sub(k.list_at)
    end
  end
  return source
end

--- What mt.cuda.kernel{...} has read out of its options: the kernel's table, without a
--- compiler or a GPU.
local function describe(o)
  local options = check_options(o)
  local text = without_comments(o.source)
  local kernels = find_kernels(without_directives(text))
  local ok, k = pcall(choose, kernels, o.name)
  if not ok then
    if not (o.signature and o.name) then error(k, 0) end
    k = { name = o.name } -- a macro makes it
  end
  local params = read_signature(k.name, o.signature or without_comments(k.parameters),
    find_aliases(text, options))
  if #params > 64 then
    error(("mt.cuda.kernel: %s has %d parameters, at most 64 are possible"):format(
      k.name, #params), 0)
  elseif #k.name > 63 then
    error(("mt.cuda.kernel: the name %s is too long: more than 63 characters"):format(
      k.name), 0)
  end
  local texts = {}
  for i, p in ipairs(params) do texts[i] = p.text end
  return { name = k.name, program = k.name .. ".cu", options = options, params = params,
    source = with_plain_names(o.source, kernels, k.name), grid = o.grid,
    block = o.block, shared = o.shared,
    text = ("%s(%s)"):format(k.name, table.concat(texts, ", ")) }
end

-- ---- messages -----------------------------------------------------------------------

-- The script that holds the source as it stands, and the line before its first.
local function find_in_script(source, level)
  local info
  repeat
    level = level + 1
    info = debug.getinfo(level, "S")
  until not info or info.what ~= "C"
  if not info or info.source:sub(1, 1) ~= "@" then return nil end
  local f = io.open(info.source:sub(2), "rb")
  if not f then return nil end
  local text = f:read "a"
  f:close()
  local at = text and text:find(source, 1, true)
  if not at then return nil end
  return info.short_src, select(2, text:sub(1, at - 1):gsub("\n", ""))
end

-- "k.cu(3): error: ..." with the script's line where the script is known.
local function with_lines(log, program, file, offset)
  local plain = program:gsub("%p", "%%%0")
  return (("\n" .. log):gsub("\n" .. plain .. "%((%d+)%)", function(line)
    if not file then return ("\n%s:%s"):format(program, line) end
    return ("\n%s:%d"):format(file, math.tointeger(line) + offset)
  end):gsub("^\n", ""):gsub("%s+$", ""))
end

--- mt.cuda.kernel, as runtime/bind/kernel.c says it.
local function kernel(o)
  local k = describe(o)
  local made, text, log = mt._kernel(k)
  if made then log = text end
  if log then
    log = with_lines(log, k.program, find_in_script(o.source, 2))
  end
  if not made then
    error(("mt.cuda.kernel: %s%s"):format(text, log and "\n" .. log or ""), 0)
  end
  if log then warn(("mt.cuda.kernel: %s: %s"):format(k.name, log)) end
  return made
end

return setmetatable({ describe = describe, with_lines = with_lines }, {
  __call = function(_, o) return kernel(o) end,
})
