-- lua/mytensor/json.lua: strings as JSON writes them, for headers and traces. What is
-- read goes through mt._json_decode.

local json = {}

local escapes = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
  ["\r"] = "\\r", ["\t"] = "\\t",
}

--- Text, which is UTF-8, in quotes.
--- @param text string
--- @return string
function json.quote(text)
  return '"' .. text:gsub('[%c"\\\127]', function(c)
    return escapes[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

return json
