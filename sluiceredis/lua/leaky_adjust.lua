-- Adds to a leaky bucket without asking, or takes out of it.
--
-- KEYS[1]  the bucket, as in leaky_take
-- ARGV[1]  its depth in nanoseconds
-- ARGV[2]  how many nanoseconds to add; negative to take out
--
-- Replies {0, the level after, now}.
local depth, delta = tonumber(ARGV[1]), tonumber(ARGV[2])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end

local level, over = 0, 0
if value then
  local digits, rest = string.match(value, '^(%d+)(.*)$')
  if digits and rest ~= '' then
    rest = string.match(rest, '^ (%d+)$')
    if rest and #rest <= 16 then over = tonumber(rest) else digits = nil end
  end
  local s, ns
  if digits then s, ns, level = ahead(digits) end
  if not s then return {-2, now} end
  level = math.max(0, math.min(level, depth + over))
end

-- A debt of more than 2^53 ns could not be computed with any more.
level = math.min(level + delta, 9007199254740991 - 1000000000)
if level <= 0 then
  if value then redis.call('DEL', KEYS[1]) end
  return {0, 0, now}
end
local text = instant(level)
if level > depth then text = text .. ' ' .. whole(level - depth) end
redis.call('SET', KEYS[1], text, 'PX', expiry(level))
return {0, level, now}
