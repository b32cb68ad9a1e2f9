-- Lends permits of a semaphore.
--
-- KEYS[1]  a sorted set: the ids of leases, by the instant at which each ends
-- KEYS[2]  a hash: what each lease weighs, its token and length, and how much all weigh
-- KEYS[3]  the last token
-- KEYS[4]  in strict mode: the epoch
-- ARGV     id, weight, lease in microseconds, limit
--
-- Replies {0 granted or 1 refused, the token, microseconds until the first lease
-- ends or 0, how much is lent as far as it is known, how many leases were clamped,
-- now}.
local id, weight, lease, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local stop = epoch(4)
if stop then return stop end
local holders, before, lost = semaphore(lease)
if not holders then return before end
local last = redis.pcall('GET', KEYS[3])
if type(last) == 'table' then return failed(last, 3) end
if last and not number(last) then return unreadable(3) end
local used = before
last = tonumber(last or 0)

-- What has ended. If it is a great deal the rest goes with the next call, and
-- counts until then.
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(now), 'LIMIT', 0, 1000)
for _, old in ipairs(ended) do
  local entry = redis.call('HGET', KEYS[2], old)
  local w = entry and lease_of(entry, lease)
  if entry and not w then return unreadable(2) end
  used = used and w and used - w
end
if #ended == holders then
  used = 0
elseif not used then -- add up what the others weigh, if each of them says so
  used = 0
  local all = redis.call('ZRANGE', KEYS[1], #ended, -1)
  for _, l in ipairs(lost) do all[#all + 1] = l.id end
  for _, other in ipairs(all) do
    local entry = redis.call('HGET', KEYS[2], other)
    local w = entry and lease_of(entry, lease)
    if entry and not w then return unreadable(2) end
    used = used and w and used + w
    if not used then break end
  end
end

-- A lease that ends later than it could was given before the clock stepped back.
local clamped, most = {}, lease
local far = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. whole(now + lease), 'WITHSCORES', 'LIMIT', 0, 1000)
for i = 1, #far, 2 do
  local entry = redis.call('HGET', KEYS[2], far[i])
  local w, _, lasts = lease_of(entry or '', lease)
  if entry and not w then return unreadable(2) end
  if w and tonumber(far[i + 1]) > now + lasts then
    clamped[#clamped + 1] = {id = far[i], lasts = lasts}
  end
end

local entry, token, again = redis.call('HGET', KEYS[2], id), 0, false
if entry then
  again, token = lease_of(entry, lease)
  if not again then return unreadable(2) end
end
for _, old in ipairs(ended) do
  if old == id then again = false end
end

local status, hint = 0, 0
if now < since + lease then
  -- Who held a lease that was lost needs time to renew it; what nobody has renewed
  -- by then has ended.
  status, hint = 1, since + lease - now
elseif again then
  status = 0 -- asked for twice, lent once
elseif not used or used + weight > limit then
  status = 1
else
  token = math.max(last + 1, now)
  used = used + weight
end

for _, old in ipairs(ended) do
  redis.call('ZREM', KEYS[1], old)
  redis.call('HDEL', KEYS[2], old)
end
most = math.max(most, restore(lost), restore(clamped))
if status == 1 and hint == 0 then
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
  if first then hint = tonumber(first) - now end
end
if status == 0 then
  if not again then
    redis.call('SET', KEYS[3], whole(token))
    redis.call('HSET', KEYS[2], id, whole(weight) .. ':' .. whole(token) .. ':' .. whole(lease))
  end
  redis.call('ZADD', KEYS[1], whole(now + lease), id)
end
if status == 0 or used ~= (before or (holders == 0 and 0 or nil)) then weigh(used) end
if status == 0 or #clamped + #lost > 0 then keep(most) end
return {status, status == 0 and token or 0, hint, used or 0, #clamped, now}
