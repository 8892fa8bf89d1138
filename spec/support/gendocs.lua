-- spec/support/gendocs.lua: writes kernels/OPS.md, lua/API.md, lua/PORTING.md and
-- lua/mytensor/meta.lua from mt.ops(), from the comments of the sources and from
-- spec/support/porting.lua. The output depends on nothing else, so that `make lint` can
-- compare. Usage: build/mtlua spec/support/gendocs.lua [folder]

package.path = "./?.lua;" .. package.path
local mt = require "mytensor"
local coverage = require "spec.support.coverage"
local sources = require "spec.support.doc_sources"

local root = arg[1] and arg[1] .. "/" or ""
local ops = mt.ops()
local c_functions = sources.c_functions "runtime/bind"
local classes, lua_functions = sources.lua_entries "lua/mytensor"
local aliases = sources.aliases "runtime/bind/ops.c"
for _, f in ipairs(lua_functions) do
  f.is_method = f.owner == "mt" and mt.Tensor[f.name] ~= nil
end

-- Methods that are functions of the module as well.
for i = 1, #c_functions do
  local f = c_functions[i]
  if f.owner == "Tensor" and type(rawget(mt, f.name)) == "function" then
    c_functions[#c_functions + 1] = { owner = "mt", name = f.name, call = f.call,
      doc = f.doc, file = f.file, arguments = "x" .. (f.arguments ~= "" and ", " or "")
        .. f.arguments, also_method = true }
  end
end

local function write(path, lines)
  local f = assert(io.open(root .. path, "w"))
  f:write(table.concat(lines, "\n"), "\n")
  f:close()
end

local function escape(text) return (text:gsub("|", "\\|")) end

-- A file's lines, with what add(format, ...) appends.
local function document()
  local lines = {}
  return lines, function(format, ...)
    lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format
  end
end

-- ---- kernels/OPS.md -----------------------------------------------------------------
local KINDS = {
  { "unary", "Elementwise, one input" }, { "binary", "Elementwise, two inputs" },
  { "ternary", "Elementwise, three inputs" },
  { "predicate", "Elementwise tests, giving bool" },
  { "compare", "Comparisons, giving bool" },
  { "custom", "Reductions, products, networks, selecting, joining" },
  { "view", "Views: they share memory and never copy" },
  { "composite", "Made of the others" }, { "random", "Random" },
}

local DTYPES = {
  float = "floats; integers and bool are promoted", any = "all, in their own",
  number = "all but bool, in their own", int = "integers and bool",
}

local function default_text(v)
  if type(v) == "string" then return ("%q"):format(v) end
  if math.type(v) == "float" then
    if v == math.huge or v == -math.huge then return v > 0 and "inf" or "-inf" end
    return ("%.17g"):format(v):gsub("^(%-?%d+)$", "%1.0")
  end
  return tostring(v)
end

-- x, dim, [keepdim = false]
local function parameters(row)
  local parts = {}
  for i, p in ipairs(row.params) do
    local text = p.name .. (p.type == "tensors" and "{}" or "")
    if p.default ~= nil then
      local v = default_text(p.default)
      -- shortest form of numbers like 0.01
      if math.type(p.default) == "float" then
        v = ("%.14g"):format(p.default)
        if v:find "^%-?%d+$" then v = v .. ".0" end
      end
      text = ("[%s = %s]"):format(text, v)
    elseif p.optional then
      text = "[" .. text .. "]"
    end
    parts[i] = text
  end
  return table.concat(parts, ", ")
end

local function checks(add)
  local counts, total = coverage.count()
  add ""
  add "## How they are checked"
  add ""
  add([[
Of %d operators, so many have reference data in each dtype, computed by PyTorch in
float64, for their values and for their gradients; gradients of gradients are checked by
difference quotients. The specs run all of it on the CPU and, where there is one, on
a GPU (`make test` prints what it ran). Random operators have specs of their own.]],
    total)
  add ""
  add("| | %s |", table.concat(coverage.kinds, " | "))
  add "|---|---|---|---|"
  for _, dtype in ipairs(coverage.dtypes) do
    local cells = {}
    for i, kind in ipairs(coverage.kinds) do
      local n = counts[dtype][kind]
      cells[i] = n > 0 and tostring(n) or ""
    end
    add("| %s | %s |", dtype, table.concat(cells, " | "))
  end
end

local function ops_md()
  local lines, add = document()
  add "# Operators"
  add ""
  add "Generated from `mt.ops()` by `make docs`; the table itself is `kernels/ops.def`."
  add ""
  add [[
Every operator is a function `mt.NAME(x, ...)`; those whose first input is one tensor
are methods `x:NAME(...)` too, and those marked *in place* have a form `x:NAME_(...)`.
What stands in brackets may be left out. Arguments come by position or, behind the
first, in a table: `x:sum(1, true)`, `x:sum{dim = 1, keepdim = true}`. Dims, indices and
labels count from 1, negative ones from the end.]]
  checks(add)
  for _, kind in ipairs(KINDS) do
    local rows = {}
    for _, row in ipairs(ops) do
      if row.kind == kind[1] and not row.internal then rows[#rows + 1] = row end
    end
    if #rows > 0 then
      add ""
      add("## " .. kind[2])
      for _, row in ipairs(rows) do
        add ""
        add("### %s", row.name)
        add ""
        add("`%s(%s)` gives `%s`: %s.", row.name, parameters(row),
          table.concat(row.outputs, ", "), row.doc)
        local facts = {}
        if row.kind == "composite" then
          facts[#facts + 1] = "dtypes: those of the operators that it is made of"
        elseif row.kind ~= "view" then
          facts[#facts + 1] = "dtypes: " .. (DTYPES[row.dtypes] or row.dtypes)
          if row.for_bool then
            facts[#facts] = ("%s, and bool as %s%s"):format(facts[#facts], row.for_bool,
              row.truth and ", of which bool is made again" or "")
          end
        end
        if row.differentiable then facts[#facts + 1] = "differentiable" end
        if row.inplace then
          facts[#facts + 1] = "in place"
            .. (row.kind == "view" and ": x itself becomes that view" or "")
        end
        if #facts > 0 then
          add ""
          add("%s.", table.concat(facts, "; "))
        end
        if row.value then
          add ""
          add("```\n%s = %s", row.outputs[1], row.value)
          for i, formula in ipairs(row.gradients or {}) do
            if formula then add("d%s = %s", row.inputs[i].name, formula) end
          end
          add "```"
        end
      end
    end
  end
  add ""
  add "## Other names"
  add ""
  for _, alias in ipairs(aliases) do add("- `%s` is `%s`", alias.name, alias.op) end
  write("kernels/OPS.md", lines)
end

-- ---- lua/API.md ---------------------------------------------------------------------
local function prose(add, text)
  for _, line in ipairs(text) do add(line) end
end

local OWNERS = {
  { "mt", "Functions of the module" }, { "Tensor", "Methods of tensors" },
  { "Tensor static", "mt.Tensor" }, { "mt.nn", "Forward and backward by hand: mt.nn" },
  { "mt.cuda", "mt.cuda" }, { "mt.cuda.Stream", "mt.cuda.Stream" },
  { "mt.cuda.Event", "mt.cuda.Event" }, { "mt.cuda.Graph", "mt.cuda.Graph" },
  { "mt.backends.cudnn", "mt.backends.cudnn" },
}

local function c_section(add, owner, title)
  local seen, any = {}, false
  for _, f in ipairs(c_functions) do
    if f.owner == owner and not seen[f.call] and not f.also_method then
      seen[f.call] = true
      if not any then
        add ""
        add("## " .. title)
        add ""
        add "| call | |"
        add "|---|---|"
        any = true
      end
      add("| `%s` | %s |", escape(f.call), escape(f.doc))
    end
  end
end

local function tags(add, entry)
  for _, p in ipairs(entry.params) do
    local name, rest = p:match "^(%S+)%s*(.*)$"
    add("- `%s`: %s", name, rest)
  end
  for _, r in ipairs(entry.returns) do add("- returns %s", r) end
end

local function constructor(class)
  for _, m in ipairs(class.methods) do
    if m.name == "init" then return m end
  end
end

local function api_md()
  local lines, add = document()
  add "# The Lua interface"
  add ""
  add [[
Generated by `make docs` from the comments in `runtime/bind/` and `lua/mytensor/`. The
operators, which are functions and methods as well, are in
[kernels/OPS.md](../kernels/OPS.md). `mt` is what `require "mytensor"` returns.]]
  for _, owner in ipairs(OWNERS) do c_section(add, owner[1], owner[2]) end
  add ""
  add "## An operator of your own"
  add ""
  add "`examples/custom_function.lua`:"
  add ""
  add "```lua"
  for line in io.lines "examples/custom_function.lua" do add("%s", line) end
  add "```"
  add ""
  add "## Functions in Lua"
  for _, f in ipairs(lua_functions) do
    add ""
    add("### %s.%s(%s)", f.owner, f.name, f.arguments)
    add ""
    prose(add, f.text)
    if f.is_method then add "A method, too." end
    if #f.text > 0 and #f.params + #f.returns > 0 then add "" end
    tags(add, f)
  end
  add ""
  add "## Classes"
  for _, class in ipairs(classes) do
    local init = constructor(class)
    add ""
    add("### %s%s", class.name:gsub("^mytensor", "mt"),
      init and "(" .. init.arguments .. ")" or "")
    add ""
    prose(add, class.text)
    if class.parent then
      add ""
      add("Inherits from `%s`.", (class.parent:gsub("^mytensor", "mt")))
    end
    if init then
      if #init.text > 0 then add "" end
      prose(add, init.text)
      if #init.params > 0 then add "" end
      tags(add, init)
    end
    if #class.fields > 0 then
      add ""
      for _, field in ipairs(class.fields) do
        local name, rest = field:match "^(%S+)%s*(.*)$"
        add("- field `%s`: %s", name, rest)
      end
    end
    for _, m in ipairs(class.methods) do
      if m.name ~= "init" then
        add ""
        add("#### %s%s(%s)", m.separator, m.name, m.arguments)
        add ""
        prose(add, m.text)
        if #m.text > 0 and #m.params + #m.returns > 0 then add "" end
        tags(add, m)
      end
    end
  end
  write("lua/API.md", lines)
end

-- ---- lua/mytensor/meta.lua ----------------------------------------------------------
local documented = require "spec.support.gendocs_meta" {
  aliases = aliases, ops = ops, c_functions = c_functions, classes = classes,
  lua_functions = lua_functions, document = document, write = write,
}

-- ---- lua/PORTING.md -----------------------------------------------------------------
local function code(text)
  if text == "" then return "" end
  return "`" .. escape(text) .. "`"
end

local function porting_md()
  local porting = require "spec.support.porting"
  local lines, add = document()
  add "# Coming from PyTorch, torch7 or NumPy"
  add ""
  add [[
Generated by `make docs` from `spec/support/porting.lua`; every call in the last column
is run by `spec/porting_spec.lua`. Left out: `np.` before NumPy's names. `F` is
`torch.nn.functional`, `t` a tensor, `m` a module. Names that PyTorch and NumPy have
besides (`multiply`, `arcsin`, `clip`, ...) work here, too:
[OPS.md](../kernels/OPS.md).]]
  add ""
  add "## What is different"
  add ""
  for _, d in ipairs(porting.differences) do add("- **%s**: %s", d[1], d[2]) end
  for _, section in ipairs(porting.sections) do
    add ""
    add("## " .. section[1])
    add ""
    add "| PyTorch | torch7 | NumPy | here | |"
    add "|---|---|---|---|---|"
    for k = 2, #section do
      local row = section[k]
      add("| %s | %s | %s | %s | %s |", code(row[1]), code(row[2]), code(row[3]),
        code(row[4]), row[5] or "")
    end
  end
  write("lua/PORTING.md", lines)
end

ops_md()
api_md()
porting_md()

-- Everything public that the module holds must be described somewhere.
local function check(t, prefix)
  local missing = false
  for name, value in pairs(t) do
    if type(value) == "function" and not name:find "^_"
      and not documented[prefix .. name]
      and not documented[prefix:gsub(":", ".") .. name] then
      io.stderr:write(("%s%s has no comment that describes it\n"):format(prefix, name))
      missing = true
    end
  end
  return missing
end
local missing = check(mt, "mt.")
missing = check(mt.Tensor, "Tensor:") or missing
missing = check(mt.nn, "mt.nn.") or missing
missing = check(mt.cuda, "mt.cuda.") or missing
missing = check(mt.backends.cudnn, "mt.backends.cudnn.") or missing
if missing then os.exit(1, true) end
