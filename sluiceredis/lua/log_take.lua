-- Takes from a sliding window.
--
-- KEYS[1]  a sorted set: one member for each unit in the window, its score the
--          instant it was admitted, in microseconds since 1970
-- ARGV[1]  the limit
-- ARGV[2]  the window in microseconds
-- ARGV[3]  a name that no other call has; members are that and a number
-- ARGV[4…] pairs: units of a request, and how many of those follow one another
--
-- Replies {0, clamped, units in the window before, the newest instant in it or 0,
-- for each pair: how many were granted, when the next of them would fit or 0 if
-- never, and last now}. A refusal is not noted.
local limit, window, name = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local used = redis.pcall('ZCARD', KEYS[1])
if type(used) == 'table' then return failed(used) end

local peek, clamped, newest = #ARGV < 4, 0, 0
local gone = 0
if used > 0 then
  gone = redis.call('ZCOUNT', KEYS[1], '-inf', whole(now - window))
  used = used - gone
  newest = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])
  if newest ~= newest or newest ~= math.floor(newest) then return {-2, now} end
  if used == 0 then newest = 0 end
end
-- After a clock stepped back members lie in the future, and would stay in the
-- window for as long as that is: they are of now, at the latest.
if newest > now then
  clamped = redis.call('ZCOUNT', KEYS[1], '(' .. whole(now), '+inf')
  newest = now
end

local reply, total = {0, clamped, used, newest}, 0
local at = math.max(now, newest)
local plan = {}
for i = 4, #ARGV, 2 do
  local n, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local fit = math.min(count, math.max(0, math.floor((limit - used - total) / n)))
  total = total + fit * n
  reply[#reply + 1] = fit
  plan[#plan + 1] = used + total + n - limit - 1 -- by rank, the last that must leave first
end
for i, rank in ipairs(plan) do
  local wait = 0
  if rank >= used then
    wait = at + window
  elseif rank >= 0 then
    wait = math.min(at, tonumber(redis.call('ZRANGE', KEYS[1], gone + rank, gone + rank, 'WITHSCORES')[2])) + window
  end
  plan[i] = wait
end

if not peek then
  if gone > 0 then redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now - window)) end
  if clamped > 0 then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. whole(now), '+inf')) do
      redis.call('ZADD', KEYS[1], whole(now), member)
    end
  end
  for i = 1, total do redis.call('ZADD', KEYS[1], whole(at), name .. ':' .. whole(i)) end
  if total > 0 or clamped > 0 then
    redis.call('PEXPIRE', KEYS[1], whole(math.ceil((at + window - now) / 1000) + 1))
  end
end
local out = {reply[1], reply[2], reply[3], reply[4]}
for i = 1, #plan do
  out[#out + 1] = reply[4 + i]
  out[#out + 1] = plan[i]
end
out[#out + 1] = now
return out
