-- A sliding window is a sorted set: one member for each unit in it, its score the
-- instant it was admitted, in microseconds since 1970. A refusal is not noted.

-- log_read returns the window of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    the limit
-- ARGV[a+1]  the window in microseconds
-- ARGV[a+2]  a name that no other call has; members are that and a number
local function log_read(i, a)
  local l = {key = KEYS[i], limit = tonumber(ARGV[a]), window = tonumber(ARGV[a + 1]), name = ARGV[a + 2],
    clamped = 0, gone = 0, newest = 0, taken = 0, out = {}}
  l.used = redis.pcall('ZCARD', l.key)
  if type(l.used) == 'table' then return nil, failed(l.used, i) end
  if l.used > 0 then
    l.gone = redis.call('ZCOUNT', l.key, '-inf', whole(now - l.window))
    l.used = l.used - l.gone
    l.newest = tonumber(redis.call('ZRANGE', l.key, -1, -1, 'WITHSCORES')[2])
    if l.newest ~= l.newest or l.newest ~= math.floor(l.newest) then return nil, unreadable(i) end
    if l.used == 0 then l.newest = 0 end
  end
  -- After a clock stepped back members lie in the future, and would stay in the
  -- window for as long as that is: they are of now, at the latest.
  if l.newest > now then
    l.clamped = redis.call('ZCOUNT', l.key, '(' .. whole(now), '+inf')
    l.newest = now
  end
  l.held = l.used
  -- What was lost may have been admitted just before the epoch: until it would have
  -- left, the window is full.
  l.full = since + l.window
  if l.full > now then l.used, l.newest = math.max(l.used, l.limit), math.max(l.newest, since) end
  return l
end

-- log_fits returns how many of count requests for n units fit, one after the
-- other.
local function log_fits(l, n, count)
  return math.max(0, math.min(count, math.floor((l.limit - l.used - l.taken) / n)))
end

-- log_when returns the instant at which n units more will fit, 0 if they do now.
local function log_when(l, n)
  local rank, at = l.held + l.taken + n - l.limit - 1, 0 -- of the last that must leave first
  if rank >= l.held then
    at = now + l.window
  elseif rank >= 0 then
    at = math.min(now, tonumber(redis.call('ZRANGE', l.key, l.gone + rank, l.gone + rank, 'WITHSCORES')[2])) + l.window
  end
  if l.full > now then at = math.max(at, l.full) end
  return at
end

-- log_write writes what was taken, forgets what has left the window and makes what
-- lies in the future of now, unless nobody has asked for anything.
local function log_write(l, asked)
  if not asked then return end
  if l.gone > 0 then redis.call('ZREMRANGEBYSCORE', l.key, '-inf', whole(now - l.window)) end
  for _, member in ipairs(l.out) do redis.call('ZREM', l.key, member) end
  if l.clamped > 0 then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', l.key, '(' .. whole(now), '+inf')) do
      redis.call('ZADD', l.key, whole(now), member)
    end
  end
  for i = 1, l.taken do redis.call('ZADD', l.key, whole(now), l.name .. ':' .. whole(i)) end
  if l.taken > 0 or l.clamped > 0 then
    redis.call('PEXPIRE', l.key, whole(math.ceil(l.window / 1000) + 1))
  end
end
