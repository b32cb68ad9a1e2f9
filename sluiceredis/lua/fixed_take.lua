-- Takes from a fixed window.
--
-- KEYS[1]  when it began, in microseconds since 1970, and how many it has seen
-- ARGV[1]  the limit
-- ARGV[2]  the window in microseconds
-- ARGV[3]  aligned: where windows begin, in microseconds after multiples of it;
--          -1: anchored at the first call
-- ARGV[4…] pairs: units of a request, and how many of those follow one another
--
-- Replies {0, requests granted, whether clamped, units used before, microseconds
-- until the window is over, now}.
local limit, window, offset = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end

-- The window that would begin now.
local start, used, clamped = now, 0, 0
if offset >= 0 then start = now - math.fmod(now - offset, window) end
if value then
  local a, b = string.match(value, '^(%d+) (%d+)$')
  if not a or #a > 16 or #b > 15 then return {-2, now} end
  local began, seen = tonumber(a), tonumber(b)
  -- A clock that was put back does not bring the allowance back, and shuts nobody
  -- out for longer than a window; of aligned ones the next may have begun.
  local ahead = start
  if offset >= 0 then ahead = start + window end
  if began > ahead then began, clamped = start, 1 end
  if now < began + window then start, used = began, seen else clamped = 0 end
end

local before, granted = used, 0
for i = 4, #ARGV, 2 do
  local n, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local fit = math.min(count, math.max(0, math.floor((limit - used) / n)))
  used, granted = used + fit * n, granted + fit
end
local left = start + window - now
if granted > 0 or (clamped == 1 and #ARGV > 3) then
  redis.call('SET', KEYS[1], whole(start) .. ' ' .. whole(used), 'PX', whole(math.ceil(left / 1000) + 1))
end
return {0, granted, clamped, before, left, now}
