-- log_add has so many units added to a window without asking or, if negative, the
-- newest taken out of those that were admitted at least so many microseconds ago,
-- or, if age is negative, at the instant −age or before. It returns how many.
local function log_add(l, delta, age)
  if delta >= 0 then
    l.taken = delta
    return delta
  end
  local last = tonumber(age)
  if last < 0 then last = -last else last = now - last end
  l.out = redis.call('ZREVRANGEBYSCORE', l.key, whole(last), '(' .. whole(math.max(0, now - l.window)), 'LIMIT', 0, whole(-delta))
  return #l.out
end
