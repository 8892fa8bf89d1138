-- spec/support/doc_sources.lua: reads what gendocs.lua writes about: the comments above
-- the binding's functions, and the `---` comments of the Lua files.

local sources = {}

local function read(path)
  local f = assert(io.open(path, "r"))
  local text = f:read "a"
  f:close()
  return text
end

--- Paths of the files below dir whose names end so, sorted.
function sources.files(dir, ending)
  local list = {}
  local p = assert(io.popen(("find %s -name '*%s' -type f | LC_ALL=C sort"):format(dir,
    ending)))
  for line in p:lines() do list[#list + 1] = line end
  p:close()
  return list
end

-- ---- C ------------------------------------------------------------------------------

-- "t:free(): give it back" -> "t:free()", "give it back". The colon that ends the call
-- is followed by a blank and stands outside of parentheses and quotes.
local function split_call(text)
  local depth, quoted = 0, false
  for i = 1, #text do
    local c = text:sub(i, i)
    if c == '"' then
      quoted = not quoted
    elseif not quoted then
      if c == "(" or c == "{" or c == "[" then depth = depth + 1 end
      if c == ")" or c == "}" or c == "]" then depth = depth - 1 end
      if c == ":" and depth == 0 and text:sub(i + 1, i + 1):find "%s" then
        return text:sub(1, i - 1), text:sub(i + 1):match "^%s*(.*)$"
      end
    end
  end
  return text, ""
end

-- Where a call belongs: "mt", "mt.nn", "Tensor"; and the function's name.
local function owner_of(object, separator, name)
  if object == "mt" or object:find "^mt%." then
    if object == "mt.Tensor" then return "Tensor static", name end
    return object, name
  end
  if object == "nn" then return "mt.nn", name end
  if separator == ":" and object:find "^[%a]%w?$" then return "Tensor", name end
  return nil
end

--- Functions of the binding: list of {owner=, name=, call=, arguments=, doc=, file=}.
function sources.c_functions(dir)
  local list = {}
  for _, path in ipairs(sources.files(dir, ".c")) do
    for comment in read(path):gmatch "/%*([^/]-)%*/%s*static int [%w_]+%(lua_State" do
      local text = comment:gsub("\n%s*%*%*?%s*", "\n"):gsub("%s+", " ")
      text = text:match "^%s*(.-)%s*$":gsub("%.? [Uu]pvalues?: .*$", "")
      local call, doc = split_call(text)
      local heading, result = call:match "^(.-%)) %-> (.*)$"
      if heading and not result:find "%->" then
        doc = doc == "" and "gives " .. result or ("gives %s; %s"):format(result, doc)
      else
        heading = call
      end
      for object, separator, name, arguments in
        call:gmatch "([%a_][%w_.]*)([.:])([%a_][%w_]*)(%b())" do
        local owner
        owner, name = owner_of(object, separator, name)
        if owner and not name:find "^_" and name ~= "NAME" and name ~= "NAME_" then
          list[#list + 1] = { owner = owner, name = name, call = heading,
            arguments = arguments:sub(2, -2), doc = doc, file = path }
        end
      end
    end
  end
  table.sort(list, function(a, b)
    if a.owner ~= b.owner then return a.owner < b.owner end
    if a.name ~= b.name then return a.name < b.name end
    return a.call < b.call
  end)
  return list
end

--- Other names of ops, as ops.c lists them: list of {name=, op=}.
function sources.aliases(path)
  local list = {}
  for name, op in read(path):gmatch '{"([%w_]+)", MT_OP_([%w_]+)}' do
    list[#list + 1] = { name = name, op = op }
  end
  return list
end

-- ---- Lua ----------------------------------------------------------------------------

-- Files whose functions are not for users.
local INTERNAL = { check = true, compiler = true, contraction = true, json = true,
  kernel = true, repl = true, meta = true, ["nn/walk"] = true, ["nn/pair"] = true,
  ["utils/terminal"] = true }
-- Where the table of a file that is no class stands in the module.
local PLACES = {
  ["class"] = "mt", ["gradcheck"] = "mt", ["serialisation"] = "mt",
  ["extension"] = "mt.extension",
  ["nn/utils"] = "mt.nn.utils", ["nn/initialise"] = "mt.nn.init",
  ["nn/parameter"] = "mt.nn",
}
-- Functions that the module knows by another name.
local RENAMED = { parameter = "Parameter" }

local function place_of(stem)
  if PLACES[stem] then return PLACES[stem] end
  local folder = stem:match "^(.*)/[^/]*$"
  return folder and "mt." .. folder:gsub("/", ".") or "mt"
end

-- Parse one file into blocks {doc = lines, code = line}.
local function blocks(path)
  local list, doc = {}, nil
  for line in io.lines(path) do
    local text = line:match "^%-%-%- ?(.*)$"
    if text then
      doc = doc or {}
      doc[#doc + 1] = text
    else
      if doc then list[#list + 1] = { doc = doc, code = line } end
      doc = nil
    end
  end
  return list
end

-- Prose and tags of a doc comment. A tag goes on in lines that are indented.
local function parse_doc(lines)
  local entry = { text = {}, params = {}, returns = {}, fields = {} }
  local open
  for _, line in ipairs(lines) do
    local tag, rest = line:match "^@(%w+)%s+(.*)$"
    if tag then
      open = nil
      local list = ({ param = entry.params, ["return"] = entry.returns,
        field = entry.fields })[tag]
      if list then
        list[#list + 1] = rest
        open = list
      elseif tag == "class" then
        entry.class = rest
      end
    elseif open and line:find "^%s+%S" then
      open[#open] = open[#open] .. " " .. line:match "^%s*(.*)$"
    else
      open = nil
      entry.text[#entry.text + 1] = line
    end
  end
  while entry.text[#entry.text] == "" do entry.text[#entry.text] = nil end
  return entry
end

-- `function Class:method(a, b)`, `function place.name(a)`, `local function name(a)`
local function parse_code(code)
  local object, separator, name, arguments =
    code:match "^function%s+([%w_]+)([.:])([%w_]+)(%b())"
  if object then return object, separator, name, arguments:sub(2, -2) end
  name, arguments = code:match "^local%s+function%s+([%w_]+)(%b())"
  if name then return nil, ".", name, arguments:sub(2, -2) end
  name = code:match "^local%s+([%w_]+)%s*="
  return nil, nil, name
end

--- Documented parts of the Lua files: classes {kind = "class", name, parent, text,
--- fields, methods} and functions {kind = "function", owner, name, arguments, ...}.
function sources.lua_entries(dir)
  local classes, functions = {}, {}
  for _, path in ipairs(sources.files(dir, ".lua")) do
    local stem = path:sub(#dir + 2, -5)
    if not INTERNAL[stem] then
      local class, variable
      local returned = read(path):match "\nreturn%s+([%w_]+)%s*$"
      for _, block in ipairs(blocks(path)) do
        local entry = parse_doc(block.doc)
        local object, separator, name, arguments = parse_code(block.code)
        if entry.class then
          local full, parent = entry.class:match "^([%w_.]+)%s*:?%s*([%w_.]*)"
          class = { kind = "class", name = full,
            parent = parent ~= "" and parent or nil, text = entry.text,
            fields = entry.fields, methods = {}, file = path }
          variable = name
          classes[#classes + 1] = class
        elseif separator and class and object == variable then
          entry.name, entry.arguments, entry.separator = name, arguments, separator
          class.methods[#class.methods + 1] = entry
        elseif separator and (object == nil and name == returned or object == returned
            and not (class and object == variable)) then
          entry.kind, entry.name = "function", RENAMED[name] or name
          entry.arguments = arguments:gsub("^_,%s*", "")
          entry.owner, entry.file = place_of(stem), path
          functions[#functions + 1] = entry
        end
      end
    end
  end
  local function by_name(a, b)
    if (a.owner or "") ~= (b.owner or "") then return a.owner < b.owner end
    return a.name < b.name
  end
  table.sort(classes, by_name)
  table.sort(functions, by_name)
  return classes, functions
end

return sources
