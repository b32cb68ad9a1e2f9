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

-- sliding_quotas returns the quotas of windows other than the own one that count, with
-- the largest limit where there are several of one window; until when the own one is
-- noted; and those that do not count any more.
local function sliding_quotas(l)
  local others, noted, gone = {}, 0, {}
  local members = redis.call('ZRANGEBYSCORE', l.key, '-inf', '(0', 'WITHSCORES')
  for m = 1, #members, 2 do
    local window, limit = string.match(members[m], '^quota (%d+) (%d+)$')
    window, limit = tonumber(window), tonumber(limit)
    local till = -tonumber(members[m + 1])
    if not limit then return nil end
    if till <= now then
      gone[#gone + 1] = members[m]
    elseif members[m] == l.quota then
      noted = till
    elseif window ~= l.window then
      local at = #others + 1
      for i, q in ipairs(others) do if q.window == window then at = i end end
      others[at] = {window = window, limit = math.max(limit, others[at] and others[at].limit or 0)}
    end
  end
  return others, noted, gone, #members / 2
end

-- sliding_gone returns how many members are not in a window: quotas, and units that have
-- left it.
local function sliding_gone(l, window)
  return redis.call('ZCOUNT', l.key, '-inf', whole(math.max(0, now - window)))
end

-- sliding_read returns the window of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    the limit
-- ARGV[a+1]  the window in microseconds
-- ARGV[a+2]  a name that no other call has; members are that and a number
local function sliding_read(i, a)
  local l = {key = KEYS[i], limit = tonumber(ARGV[a]), window = tonumber(ARGV[a + 1]), name = ARGV[a + 2],
    clamped = 0, gone = 0, newest = 0, taken = 0, out = {}, others = {}, noted = 0}
  l.quota = 'quota ' .. ARGV[a + 1] .. ' ' .. ARGV[a]
  l.longest = l.window
  l.used = redis.pcall('ZCARD', l.key)
  if type(l.used) == 'table' then return nil, failed(l.used, i) end
  local all, newest = l.used, 0
  if all > 0 then
    local others, noted, over, quotas = sliding_quotas(l)
    if not others then return nil, unreadable(i) end
    l.others, l.noted, l.over, l.quotas = others, noted, over, quotas
    newest = tonumber(redis.call('ZRANGE', l.key, -1, -1, 'WITHSCORES')[2])
    if newest ~= newest or newest ~= math.floor(newest) then return nil, unreadable(i) end
    l.gone = sliding_gone(l, l.window)
    l.used = all - l.gone
    if l.used > 0 then l.newest = newest end
  end
  -- After a clock stepped back members lie in the future, and would stay in the
  -- window for as long as that is: they are of now, at the latest.
  if newest > now then
    l.clamped = math.min(10000, redis.call('ZCOUNT', l.key, '(' .. whole(now), '+inf'))
    newest, l.newest = now, now
  end
  l.held = l.used
  -- What was lost may have been admitted just before the epoch: until it would have
  -- left, the window is full.
  l.full = since + l.window
  if l.full > now then l.used, l.newest = math.max(l.used, l.limit), math.max(l.newest, since) end

  -- The own window is as full as leaves the room that the others have.
  for _, q in ipairs(l.others) do
    l.longest = math.max(l.longest, q.window)
    q.gone = sliding_gone(l, q.window)
    q.held, q.full = all - q.gone, since + q.window
    local used = q.held
    if q.full > now then used = math.max(used, q.limit) end
    if l.limit - l.used > q.limit - used then
      l.used = l.limit - (q.limit - used)
      l.newest = math.max(newest, q.full > now and since or 0) + q.window - l.window
    end
  end
  l.room = l.limit - l.used
  return l
end

-- sliding_room returns the instant at which n units more will fit by one quota, 0 if they
-- do now.
local function sliding_room(l, q, n)
  local rank, at = q.held + l.taken + n - q.limit - 1, 0 -- of the last that must leave first
  if rank >= q.held then
    at = now + q.window
  elseif rank >= 0 then
    at = math.min(now, tonumber(redis.call('ZRANGE', l.key, q.gone + rank, q.gone + rank, 'WITHSCORES')[2])) + q.window
  end
  if q.full > now then at = math.max(at, q.full) end
  return at
end

-- sliding_when returns the instant at which n units more will fit, 0 if they do now.
local function sliding_when(l, n)
  local at = sliding_room(l, l, n)
  for _, q in ipairs(l.others) do at = math.max(at, sliding_room(l, q, n)) end
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
  if l.gone > (l.quotas or 0) then
    local gone = sliding_gone(l, l.longest) - l.quotas -- behind the quotas
    if gone > 0 then redis.call('ZREMRANGEBYRANK', l.key, l.quotas, l.quotas + math.min(gone, 10000) - 1) end
  end
  sliding_each('ZREM', l.key, l.out)
  sliding_each('ZREM', l.key, l.over or {})
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
    redis.call('PEXPIRE', l.key, whole(math.ceil(l.longest / 1000) + 1))
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
