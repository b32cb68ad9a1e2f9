-- Lends permits of a semaphore.
--
-- KEYS[1]  a sorted set: the ids of leases, by the instant at which each ends
-- KEYS[2]  a hash: what each lease weighs and its token, and how much all weigh
-- KEYS[3]  the last token
-- KEYS[4]  in strict mode: the epoch
-- ARGV     id, weight, lease in microseconds, limit
--
-- Replies {0 granted or 1 refused, the token, microseconds until the first lease
-- ends or 0, how much is lent, how many leases were clamped, now}.
local id, weight, lease, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local stop = epoch(4)
if stop then return stop end
local holders = redis.pcall('ZCARD', KEYS[1])
if type(holders) == 'table' then return failed(holders, 1) end
local used = redis.pcall('HGET', KEYS[2], 'used')
if type(used) == 'table' then return failed(used, 2) end
local last = redis.pcall('GET', KEYS[3])
if type(last) == 'table' then return failed(last, 3) end
if (used and not number(used)) or (not used and holders > 0) then return unreadable(2) end
if last and not number(last) then return unreadable(3) end
used, last = tonumber(used or 0), tonumber(last or 0)

-- What has ended. If it is a great deal the rest goes with the next call, and
-- counts until then.
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(now), 'LIMIT', 0, 1000)
for _, old in ipairs(ended) do
  local w = weighs(redis.call('HGET', KEYS[2], old))
  if not w then return unreadable(2) end
  used = used - w
end
local entry = redis.call('HGET', KEYS[2], id)
if entry and not weighs(entry) then return unreadable(2) end

for _, old in ipairs(ended) do
  redis.call('ZREM', KEYS[1], old)
  redis.call('HDEL', KEYS[2], old)
  if old == id then entry = false end
end
if #ended == holders then used = 0 end

-- A lease that ends later than it could was given before the clock stepped back.
local clamped = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. whole(now + lease), '+inf', 'LIMIT', 0, 1000)
for _, far in ipairs(clamped) do redis.call('ZADD', KEYS[1], whole(now + lease), far) end

local status, token, hint = 0, 0, 0
if now < since + lease then
  -- Who held a lease that was lost needs time to renew it; what nobody has renewed
  -- by then has ended.
  status, hint = 1, since + lease - now
elseif entry then
  token = tonumber(string.match(entry, ':(%d+)$')) -- asked for twice, lent once
elseif used + weight > limit then
  status = 1
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
  if first then hint = tonumber(first) - now end
else
  token = math.max(last + 1, now)
  used = used + weight
  redis.call('SET', KEYS[3], whole(token))
  redis.call('HSET', KEYS[2], id, whole(weight) .. ':' .. whole(token))
end
if status == 0 then redis.call('ZADD', KEYS[1], whole(now + lease), id) end
if status == 0 or #ended > 0 then redis.call('HSET', KEYS[2], 'used', whole(used)) end
if status == 0 or #clamped > 0 then
  local ms = whole(math.ceil(lease / 1000) + 1)
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('PEXPIRE', KEYS[2], ms)
end
return {status, token, hint, used, #clamped, now}
