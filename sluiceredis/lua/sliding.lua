-- A sliding window is a sorted set: one member for each unit in it, its score the
-- instant it was admitted, in microseconds since 1970. A refusal is not noted.
-- A member costs the server some 2 µs, so no script writes, moves or forgets more
-- than 10,000: what is left to forget or to move is so with the next one.
--
-- Beside them, with a score below 0, there is one member for each quota that asks:
-- its window and limit, and in the score until when it counts. Programs with
-- different windows share one log in this way, as they do while a deploy changes the
-- window: each is admitted only what all of these quotas allow, and what the longest
-- window still needs is kept.

-- sliding_read returns the window of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    the limit
-- ARGV[a+1]  the window in microseconds
-- ARGV[a+2]  a name that no other call has; members are that and a number
local function sliding_read(i, a)
  local own = {limit = tonumber(ARGV[a]), window = tonumber(ARGV[a + 1])}
  local l = {key = KEYS[i], name = ARGV[a + 2], quota = 'quota ' .. ARGV[a + 1] .. ' ' .. ARGV[a], window = own.window,
    quotas = {own}, longest = own, marks = 0, noted = 0, over = {}, out = {}, clamped = 0, taken = 0}
  local all, newest = redis.pcall('ZCARD', l.key), 0
  if type(all) == 'table' then return nil, failed(all, i) end
  if all > 0 then
    -- Of the quotas that count one for each window, with the largest limit.
    local marks, of = redis.call('ZRANGEBYSCORE', l.key, '-inf', '(0', 'WITHSCORES'), {[ARGV[a + 1]] = own}
    l.marks = #marks / 2
    for m = 1, #marks, 2 do
      local window, limit = string.match(marks[m], '^quota (%d+) (%d+)$')
      local q, till = of[window], -tonumber(marks[m + 1])
      if not window then return nil, unreadable(i) end
      if till <= now then
        l.over[#l.over + 1] = marks[m]
      elseif marks[m] == l.quota then
        l.noted = till
      elseif not q then
        of[window] = {window = tonumber(window), limit = tonumber(limit)}
        l.quotas[#l.quotas + 1] = of[window]
      elseif q ~= own then
        q.limit = math.max(q.limit, tonumber(limit))
      end
    end
    newest = tonumber(redis.call('ZRANGE', l.key, -1, -1, 'WITHSCORES')[2])
    if newest ~= math.floor(newest) then return nil, unreadable(i) end -- which no NaN is, either
  end
  -- After a clock stepped back members lie in the future, and would stay in the
  -- window for as long as that is: they are of now, at the latest.
  if newest > now then
    newest, l.clamped = now, math.min(10000, redis.call('ZCOUNT', l.key, '(' .. whole(now), '+inf'))
  end
  -- The window is as full as leaves the room that all quotas have.
  for _, q in ipairs(l.quotas) do
    -- Members that are not in a window: quotas, and units that have left it.
    q.gone = all > 0 and redis.call('ZCOUNT', l.key, '-inf', whole(math.max(0, now - q.window))) or 0
    q.held, q.full = all - q.gone, since + q.window
    -- What was lost may have been admitted just before the epoch: until it would have
    -- left, the window is full.
    local used, latest = q.held, 0
    if used > 0 then latest = newest end
    if q.full > now then used, latest = math.max(used, q.limit), math.max(latest, since) end
    if not l.room or q.limit - used < l.room then l.room, l.newest = q.limit - used, latest + q.window - own.window end
    if q.window > l.longest.window then l.longest = q end
  end
  l.used = own.limit - l.room
  return l
end

-- sliding_when returns the instant at which n units more will fit, 0 if they do now.
local function sliding_when(l, n)
  local at = 0
  for _, q in ipairs(l.quotas) do
    local rank = q.held + l.taken + n - q.limit - 1 -- of the last that must leave first
    if rank >= q.held then
      at = math.max(at, now + q.window)
    elseif rank >= 0 then
      local leaves = redis.call('ZRANGE', l.key, q.gone + rank, q.gone + rank, 'WITHSCORES')[2]
      at = math.max(at, math.min(now, tonumber(leaves)) + q.window)
    end
    if q.full > now then at = math.max(at, q.full) end
  end
  return at
end

-- sliding_each calls a command for many arguments, which takes the server less time than
-- a call for each.
local function sliding_each(command, key, args)
  for from = 1, #args, 1000 do
    redis.call(command, key, unpack(args, from, math.min(from + 999, #args)))
  end
end

-- sliding_write writes what was taken, forgets what no window needs any more and makes
-- what lies in the future of now, unless nothing was asked for.
local function sliding_write(l, asked)
  if not asked then return end
  local gone = l.longest.gone - l.marks -- behind the quotas
  if gone > 0 then redis.call('ZREMRANGEBYRANK', l.key, l.marks, l.marks + math.min(gone, 10000) - 1) end
  sliding_each('ZREM', l.key, l.out)
  sliding_each('ZREM', l.key, l.over)
  local add = {}
  if l.clamped > 0 then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', l.key, '(' .. whole(now), '+inf', 'LIMIT', 0, 10000)) do
      add[#add + 1] = whole(now)
      add[#add + 1] = member
    end
  end
  local at = whole(now)
  for i = 1, l.taken do
    add[#add + 1] = at
    add[#add + 1] = l.name .. ':' .. whole(i)
  end
  -- The quota counts for a window after it asked last, and is not noted each time.
  local notes = (l.used > 0 or l.taken > 0) and l.noted < now + l.window
  if notes then
    add[#add + 1] = whole(-now - math.ceil(1.25 * l.window))
    add[#add + 1] = l.quota
  end
  sliding_each('ZADD', l.key, add)
  if l.taken > 0 or l.clamped > 0 or notes then
    redis.call('PEXPIRE', l.key, whole(math.ceil(l.longest.window / 1000) + 1))
  end
end

-- sliding_add has so many units added to a window without asking or, if negative, the
-- newest taken out of those that were admitted at least so many microseconds ago,
-- or, if age is negative, at the instant −age or before. It returns how many.
local function sliding_add(l, delta, age)
  if delta >= 0 then
    l.taken = delta
    return delta
  end
  local last = tonumber(age)
  if last < 0 then last = -last else last = now - last end
  l.out = redis.call('ZREVRANGEBYSCORE', l.key, whole(last), '(' .. whole(math.max(0, now - l.window)), 'LIMIT', 0, whole(-delta))
  return #l.out
end

kinds.sliding = {args = 3, found = {'clamped', 'used', 'newest'}, read = sliding_read, write = sliding_write, when = sliding_when, add = sliding_add}
