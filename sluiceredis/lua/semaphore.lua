-- Asks a semaphore.
--
-- KEYS[1]  a hash: for each lease its weight, its token, its length from one renewal to
--          the next and its end; and as = how much all weigh, an instant before which none
--          ends, and the instant from which something is lent again, or 0
-- KEYS[2]  the last token, when the last lease ends, and when that was written
-- KEYS[3]  in strict mode: the epoch
-- ARGV     what is asked for, how long a lease of this machine lasts, and
--   acquire  id, weight, limit; and for each further lease: id, weight; or, to release one
--            before all that: id, - or, if a request for it may arrive later than this, -1
--   renew    for each lease: id, weight, token
--   release  for each lease: id; and if a request for it may arrive later than this, 1
--
-- All times are in microseconds. acquire replies {0 granted or 1 refused, the token, how
-- long until it is worth asking again, how much is lent, how many leases were clamped, the
-- token of each further lease or 0, now}; it ends with the first that does not fit. renew
-- replies {0, for each id 1 or, if the lease had ended, 0, or, if it may have been lost and
-- is there again, 2; now}; release {0, 1 if the first lease had not ended, how much is lent,
-- now}.

-- numbers returns the numbers that an entry consists of, or nil.
local three, four = '^(%d+) (%d+) (%d+)$', '^(%d+) (%d+) (%d+) (%d+)$'
local function numbers(entry, pattern)
  local list = {string.match(entry, pattern)}
  for i, number in ipairs(list) do
    if #number > 16 then return nil end
    list[i] = tonumber(number)
  end
  return list[1] and list
end

local stop = epoch(3)
if stop then return stop end
local verb, lease, id, far = ARGV[1], tonumber(ARGV[2]), ARGV[3], 9007199254740991
local sums, counter = redis.pcall('HGET', KEYS[1], '='), redis.pcall('GET', KEYS[2])
if type(sums) == 'table' then return failed(sums, 1) end
if type(counter) == 'table' then return failed(counter, 2) end
local sum, count = numbers(sums or '0 9007199254740991 0', three), numbers(counter or '0 0 0', three)
if not sum or not sums and redis.call('EXISTS', KEYS[1]) == 1 then return unreadable(1) end
if not count then return unreadable(2) end
local used, first, open = unpack(sum)
local last, till, at = unpack(count)
if at > now then till, open = till - at + now, open - at + now end -- the clock stepped back
-- The server has dropped the leases, not when they end: nothing is lent until then.
if not sums then open = till end

-- What has ended goes, and what ends later than it could, because the clock stepped back,
-- ends when it can. While no lease can have ended nothing need be looked at.
local gone, set, clamped, changed = {}, {}, 0, false
if sums and (first <= now or at > now or not counter) then
  used, first, till, changed = 0, far, 0, true
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local l = all[i] == '=' and {0, 0, 0, far} or numbers(all[i + 1], four)
    if not l then return unreadable(1) end
    local weight, token, lasts, ends = unpack(l)
    if ends <= now then
      gone[all[i]] = true
    elseif ends < far then
      if ends > now + lasts then
        clamped, ends = clamped + 1, now + lasts
        set[all[i]] = string.format('%d %d %d %d', weight, token, lasts, ends)
      end
      used, first, till, last = used + weight, math.min(first, ends), math.max(till, ends), math.max(last, token)
    end
  end
end
-- Until then nothing is lent, and a lease that a holder believes in is there again with
-- its next renewal: it was lost, or prolonged by more than is known here.
local closed = math.max(open, since + lease)

-- held returns the lease of an id, or nil.
local function held(id)
  local l = sums and not gone[id] and redis.call('HGET', KEYS[1], id)
  return l and numbers(l, four) or nil
end

-- keep notes a lease that lasts so long from now.
local function keep(id, weight, token, lasts)
  set[id], changed = string.format('%d %d %d %d', weight, token, lasts, now + lasts), true
  first, till, last = math.min(first, now + lasts), math.max(till, now + lasts), math.max(last, token)
end

-- release ends a lease, if there is one. late says that a request for it may arrive later.
local function release(id, late)
  local l = held(id)
  if l then used, gone[id], changed = used - l[1], true, true end
  -- In its place there is one of nothing: a request that arrives late finds that lent.
  if late then keep(id, 0, 0, lease) end
end

local reply
if verb == 'acquire' then
  for i = 6, #ARGV, 2 do
    if string.sub(ARGV[i + 1], 1, 1) == '-' then release(ARGV[i], ARGV[i + 1] == '-1') end
  end
  local limit, full, i, weight = tonumber(ARGV[5]), closed > now, 6, tonumber(ARGV[4])
  reply = {1, 0, full and closed - now or 0, used, clamped}
  while id do
    local l, token = not full and held(id), 0
    if l then -- asked for twice, lent once
      token = l[2]
      keep(id, l[1], l[2], l[3])
    elseif not full and used + weight > limit then
      full = true
      if first < far then reply[3] = first - now end
    elseif not full then
      token = math.max(last + 1, now)
      used = used + weight
      reply[4] = used
      keep(id, weight, token, lease)
    end
    if i > 6 then reply[#reply + 1] = token elseif not full then reply[1], reply[2] = 0, token end
    while ARGV[i] and string.sub(ARGV[i + 1], 1, 1) == '-' do i = i + 2 end
    id, weight, i = ARGV[i], tonumber(ARGV[i + 1] or 0), i + 2
  end
elseif verb == 'renew' then
  reply = {0}
  for i = 3, #ARGV, 3 do
    local l, weight, token = held(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    if l then weight, token = l[1], l[2] elseif closed > now then used = used + weight end
    if l or closed > now then keep(ARGV[i], weight, token, lease) end
    reply[#reply + 1] = closed > now and 2 or l and 1 or 0
  end
else
  local found = held(id) and 1 or 0
  for i = 3, #ARGV, 2 do release(ARGV[i], ARGV[i + 1] == '1') end
  reply = {0, found, used}
end

if changed then
  for id in pairs(gone) do redis.call('HDEL', KEYS[1], id) end
  for id, l in pairs(set) do redis.call('HSET', KEYS[1], id, l) end
  if open <= now and redis.call('HLEN', KEYS[1]) <= (sums and 1 or 0) then
    redis.call('DEL', KEYS[1])
    till = 0
  else
    redis.call('HSET', KEYS[1], '=', string.format('%d %d %d', used, first, open > now and open or 0))
    local lasts = math.ceil((math.max(till, open) - now) / 1000) + 1
    redis.call('PEXPIRE', KEYS[1], whole(lasts))
  end
  redis.call('SET', KEYS[2], string.format('%d %d %d', last, math.max(0, till), now))
end
reply[#reply + 1] = now
return reply
