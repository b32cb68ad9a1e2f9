-- leaky_add has so many nanoseconds added to a bucket without asking, or taken
-- out if negative, unless the microsecond late has come; 0 sets no bound. It returns
-- how many.
local function leaky_add(b, delta, late)
  if delta < 0 and late ~= '0' and now >= tonumber(late) then return 0 end
  -- A debt of more than 2^53 ns could not be computed with any more.
  local after = math.max(0, math.min(b.level + delta, most))
  b.taken = after - b.level
  return math.abs(b.taken)
end
