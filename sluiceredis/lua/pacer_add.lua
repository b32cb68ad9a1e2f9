-- pacer_add has so many nanoseconds of slots taken without asking. Negative, it
-- gives back those that end at the instant last, if no others were reserved after
-- them. It returns how many.
local function pacer_add(p, delta, last)
  if delta < 0 and string.match(p.value or '', '^%d*') ~= last then return 0 end
  if p.free + delta > 9007199254740991 then return 0 end
  p.taken = delta
  return math.abs(delta)
end
