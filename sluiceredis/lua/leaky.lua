-- A leaky bucket is the instant at which it will be empty and, if it was
-- overdrawn, by how many nanoseconds.

-- leaky_read returns the bucket of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    its depth: how many nanoseconds a full one takes to drain
-- ARGV[a+1]  1: a bucket is never fuller than full; 0: as redis-cell
local function leaky_read(i, a)
  local depth, native = tonumber(ARGV[a]), ARGV[a + 1] == '1'
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then return nil, failed(value, i) end

  local s, ns, level, over = 0, 0, 0, 0
  if value then
    local digits = value
    if string.find(value, '%D') or value == '' then -- overdrawn, or not ours
      local rest
      digits, rest = string.match(value, '^(%d+) (%d+)$')
      if not digits or not native or #rest > 16 then return nil, unreadable(i) end
      over = tonumber(rest)
    end
    s, ns, level = ahead(digits)
    if not s then return nil, unreadable(i) end
    if level < 0 then s, ns, level = 0, 0, 0 end
  end

  local clamped = 0
  if native and level > depth + over then
    s, ns, level, clamped = 0, depth + over, depth + over, 1
  end

  -- What was lost may have filled the bucket, just before the epoch.
  local floor = (since - now) * 1000 + depth
  if level < floor then s, ns, level = 0, floor, floor end
  return {key = KEYS[i], depth = depth, clamped = clamped, s = s, ns = ns, level = level, taken = 0}
end

-- leaky_fits returns how many of count requests that cost so many nanoseconds
-- each fit, one after the other.
local function leaky_fits(b, cost, count)
  local fit = math.floor((b.depth - b.level - b.taken) / cost) -- below 2^53 no quotient is rounded up to a whole number
  return math.max(0, math.min(count, fit))
end

-- leaky_write writes what was taken. A refusal writes nothing, unless what was
-- there is impossible: a clock that stepped back would otherwise have the bucket
-- full until it has caught up. Who has not asked for anything never writes.
local function leaky_write(b, asked)
  if b.taken == 0 and not (b.clamped == 1 and asked) then return end
  local level = b.level + b.taken
  if level <= 0 then
    redis.call('DEL', b.key)
    return
  end
  local text = instant(level)
  if level > b.depth then text = text .. ' ' .. whole(level - b.depth) end
  redis.call('SET', b.key, text, 'PX', expiry(level))
end
