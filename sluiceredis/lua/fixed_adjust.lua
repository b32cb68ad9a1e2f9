-- Adds to a fixed window without asking, or takes out of it.
--
-- KEYS[1]  as in fixed_take
-- ARGV[1]  the window in microseconds
-- ARGV[2]  as ARGV[3] of fixed_take
-- ARGV[3]  how many units to add; negative to take out
-- ARGV[4]  how many microseconds ago what is taken out was admitted, at most
--
-- Replies {0, how many were added or taken out, now}.
local window, offset, delta, age = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end

local start, used = now, 0
if offset >= 0 then start = now - math.fmod(now - offset, window) end
if value then
  local a, b = string.match(value, '^(%d+) (%d+)$')
  if not a or #a > 16 or #b > 15 then return {-2, now} end
  local began = tonumber(a)
  if now < began + window then start, used = began, tonumber(b) end
end
local after
if delta < 0 then
  -- What was admitted in a window that is over must not be taken off this one.
  if now - age < start then return {0, 0, now} end
  after = math.max(0, used + delta)
else
  after = math.min(used + delta, 999999999999999)
end
if after ~= used then
  redis.call('SET', KEYS[1], whole(start) .. ' ' .. whole(after), 'PX', whole(math.ceil((start + window - now) / 1000) + 1))
end
return {0, math.abs(after - used), now}
