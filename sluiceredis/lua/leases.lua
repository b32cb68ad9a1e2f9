-- A semaphore is a set of leases, by when each ends, and a hash of what each weighs,
-- its token and how long it lasts from one renewal to the next: weight:token:µs.
-- Beside them the hash holds in used how much all weigh.
--
-- A server that evicts keys may drop one of the two. What is left is enough to go on:
-- without the set all leases of the hash are as if they had just been renewed;
-- without the hash, or a part of it, nothing more is lent until each holder has
-- renewed and thereby said what it holds, or has ended.

-- number tells whether text is a whole number that a double can hold.
local function number(text) return #text <= 16 and string.find(text, '^%d+$') end

-- lease_of returns what a lease weighs, its token and how long it lasts, or nil if
-- that is not what an entry says. One without a length lasts as long as otherwise.
local function lease_of(entry, otherwise)
  local w, token, lasts = string.match(entry, '^(%d+):(%d+):?(%d*)$')
  if not w or #w > 16 or #token > 16 or #lasts > 16 then return nil end
  return tonumber(w), tonumber(token), tonumber(lasts) or otherwise
end

-- semaphore returns how many leases there are and how much they weigh, nil if that
-- is not known; or nil and what to reply. It returns what restore wants if the set
-- was lost. A lease without a length lasts as long as otherwise.
local function semaphore(otherwise)
  local holders = redis.pcall('ZCARD', KEYS[1])
  if type(holders) == 'table' then return nil, failed(holders, 1) end
  local used = redis.pcall('HGET', KEYS[2], 'used')
  if type(used) == 'table' then return nil, failed(used, 2) end
  if used and not number(used) then return nil, unreadable(2) end
  local lost = {}
  if holders == 0 and redis.call('HLEN', KEYS[2]) > (used and 1 or 0) then
    local all = redis.call('HGETALL', KEYS[2])
    for i = 1, #all, 2 do
      if all[i] ~= 'used' then
        local w, _, lasts = lease_of(all[i + 1], otherwise)
        if not w then return nil, unreadable(2) end
        lost[#lost + 1] = {id = all[i], lasts = lasts}
      end
    end
  end
  return holders + #lost, used and tonumber(used) or nil, lost
end

-- restore puts leases back into the set.
local function restore(lost)
  local most = 0
  for _, l in ipairs(lost) do
    redis.call('ZADD', KEYS[1], whole(now + l.lasts), l.id)
    most = math.max(most, l.lasts)
  end
  return most
end

-- weigh notes how much all leases weigh, or that it is not known.
local function weigh(used)
  if used then redis.call('HSET', KEYS[2], 'used', whole(used)) else redis.call('HDEL', KEYS[2], 'used') end
end

-- keep has both keys stay for so many microseconds at least. It never shortens that:
-- leases of other machines may last longer. The hash does not outlive the set, so
-- that a set which has expired is not one that was lost.
local function keep(lasts)
  local ms = math.max(math.ceil(lasts / 1000) + 1, redis.call('PTTL', KEYS[1]) - 1, redis.call('PTTL', KEYS[2]))
  redis.call('PEXPIRE', KEYS[2], whole(ms))
  redis.call('PEXPIRE', KEYS[1], whole(ms + 1))
end
