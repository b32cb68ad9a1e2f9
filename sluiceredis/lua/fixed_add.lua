-- fixed_add has so many units added to a window without asking, or taken out if
-- negative that were admitted so many microseconds ago, at most. It returns how
-- many.
local function fixed_add(f, delta, age)
  -- What was admitted in a window that is over must not be taken off this one.
  if delta < 0 and now - tonumber(age) < f.start then return 0 end
  f.taken = math.max(0, math.min(f.held + delta, 999999999999999)) - f.held
  return math.abs(f.taken)
end
