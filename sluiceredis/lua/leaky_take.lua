-- Takes from a leaky bucket.
--
-- KEYS[1]  the bucket: the instant at which it will be empty and, if it was
--          overdrawn, by how many nanoseconds
-- ARGV[1]  its depth: how many nanoseconds a full one takes to drain
-- ARGV[2]  1: a bucket is never fuller than full; 0: as redis-cell
-- ARGV[3…] pairs: what a request costs, in nanoseconds, and how many of those
--          follow one another. Without any the bucket is only looked at.
--
-- Replies {0, requests granted, whether clamped, the level before: seconds,
-- nanoseconds, now}. Who was granted follows from that: see cell.decide.
local depth, native = tonumber(ARGV[1]), ARGV[2] == '1'
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end

local s, ns, level, over = 0, 0, 0, 0
if value then
  local digits = value
  if string.find(value, '%D') or value == '' then -- overdrawn, or not ours
    local rest
    digits, rest = string.match(value, '^(%d+) (%d+)$')
    if not digits or not native or #rest > 16 then return {-2, now} end
    over = tonumber(rest)
  end
  s, ns, level = ahead(digits)
  if not s then return {-2, now} end
  if level < 0 then s, ns, level = 0, 0, 0 end
end

local clamped = 0
if native and level > depth + over then
  s, ns, level, clamped = 0, depth + over, depth + over, 1
end

local granted, after = 0, level
for i = 3, #ARGV, 2 do
  local cost, count, room = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), depth - after
  local fit = math.floor(room / cost) -- below 2^53 no quotient is rounded up to a whole number
  if fit > count then fit = count end
  if fit > 0 then after, granted = after + fit * cost, granted + fit end
end

-- A refusal writes nothing, unless what was there is impossible: a clock that
-- stepped back would otherwise have the bucket full until it has caught up. Who
-- only looks never writes.
if granted > 0 or (clamped == 1 and #ARGV > 2) then
  local text = instant(after)
  if after > depth then text = text .. ' ' .. whole(after - depth) end
  redis.call('SET', KEYS[1], text, 'PX', expiry(after))
end
return {0, granted, clamped, s, ns, now}
