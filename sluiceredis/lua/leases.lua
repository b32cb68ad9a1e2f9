-- number tells whether text is a whole number that a double can hold.
local function number(text) return #text <= 16 and string.find(text, '^%d+$') end

-- weighs returns what a lease weighs, or nil if that is not what an entry says.
local function weighs(entry)
  local w, token = string.match(entry or '', '^(%d+):(%d+)$')
  if w and number(w) and number(token) then return tonumber(w) end
end
