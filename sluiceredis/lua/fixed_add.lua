-- fixed_add has so many units added to a window without asking, or taken out if
-- negative that were admitted so many microseconds ago, at most. It returns how
-- many.
local function fixed_add(f, delta, age)
  local function added(w)
    -- What was admitted in a window that is over must not be taken off this one.
    if delta < 0 and now - tonumber(age) < w.start then return 0 end
    return math.max(0, math.min(w.used + delta, 1000000000000000)) - w.used
  end
  for _, w in ipairs(f.others) do
    w.taken = added(w)
    f.back = f.back or w.taken ~= 0
  end
  f.taken = added(f.own)
  return math.abs(f.taken)
end
