-- Takes from sets of limits: of each set from all of its limits, or from none. Sets are
-- decided one after the other, and a key that cannot be read matters to its own set only.
--
-- KEYS  for each set one for each of its limits; in strict mode, last: the epoch
-- ARGV  for each set: its limits as read_all wants them; how many runs follow, and the
--       runs: how many equal requests follow one another, and what one takes of each
--       limit, in what that counts, or 0. Without any run the limits are only looked at.
--       In strict mode, last: epoch
--       A short set is one request for one bucket: what it takes, and what follows the
--       kind in other sets; or = if that is the same as of the set before, which was short
--
-- Replies {0; for each set: how many integers follow; requests granted, or a negative code
-- and which of its keys it is about; of each limit what its read found; for each run: when
-- the next of its requests would fit into each sliding window, or 0; now}. Which requests
-- were granted and what a limit would have said follows from that: see request.decide.
-- Of a short set it may reply one integer only: -1 - 2 * level - requests granted.
--
-- Most sets are one bucket that is empty, or of the rate that is asked for and no other,
-- and no fuller than full. They are decided without functions, because Lua makes each one
-- anew in each call, which takes as long as a tenth of a command. All others are left to
-- take_set. General makes it, for sets in ARGV or in another table; scripts.go puts in what
-- general consists of. Short sets save time because each argument and each integer costs
-- the server about 0.1 µs, of the 3 µs that it needs for a set.
local call, pcall, match, format, tonumber, keys, args = redis.call, redis.pcall, string.match, string.format, tonumber, KEYS, ARGV
local reply, r, k, a, last, strict = {0}, 1, 0, 1, #keys, args[#args] == 'epoch'
local cost, depth, tag, general, long, take_short, take_set
if strict then last = last - 1 end
while k < last do
  local kind, usual, short, runs, count, n, level = args[a], not strict, true, '1', '1', 1, 0
  if kind ~= '=' then
    cost, n = tonumber(kind), 3
    short = cost ~= nil
    if short then
      depth, tag = tonumber(args[a + 1]), args[a + 2]
    else
      depth, tag, runs, n = tonumber(args[a + 1]), args[a + 2], args[a + 3], 4
      if runs == '1' then count, cost, n = args[a + 4], tonumber(args[a + 5]), 6 end
      usual = usual and kind == 'bucket' and (runs == '1' or runs == '0')
    end
  end
  if usual then
    local value = pcall('GET', keys[k + 1])
    usual = not value
    if type(value) == 'string' then
      local s, ns, of = match(value, '^([1-8]%d%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d)(.*)$')
      if of == tag then
        level = (s - sec) * 1000000000 + (tonumber(ns) - us * 1000) -- miniredis takes 0… for octal in arithmetic
        if level < 0 then level = 0 end
        usual = level <= depth
      end
    end
  end
  if usual then
    local granted = 0
    if runs == '1' then
      local room = depth - level
      if cost <= room then granted = count == '1' and 1 or math.min(count + 0, math.floor(room / cost)) end
      if granted > 0 then
        local after = level + granted * cost
        local part = after % 1000000000
        local ns, s = part + us * 1000, (after - part) / 1000000000 + sec
        if ns >= 1000000000 then s, ns = s + 1, ns - 1000000000 end
        call('SET', keys[k + 1], format('%d%09d%s', s, ns, tag), 'PX', format('%d', after / 1000000 + 2))
      end
    end
    if short and level < 2251799813685248 then -- 2^51
      r = r + 1
      reply[r] = -1 - 2 * level - granted
    else
      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = 3, granted, 0, level
      r = r + 4
    end
    k, a = k + 1, a + n
  else
    if not general then
      general = function(ARGV)
        parts_of_general()
        return strict and epoch(#keys) or nil, take_set
      end
    end
    local stop, next
    if short and not take_short then
      long = {'bucket', 0, 0, '1', '1', 0}
      stop, take_short = general(long)
    elseif not short and not take_set then
      stop, take_set = general(args)
    end
    if stop then return stop end
    if short then
      long[2], long[3], long[6] = depth, tag, cost
      k, next = take_short(k, 1, reply)
      a = a + n
    else
      k, next = take_set(k, a, reply)
      a = next
    end
    if not k then return next end
    r = #reply
  end
end
if r == 4 and reply[2] == 2 then return {reply[3], now, reply[4]} end -- as other scripts do
reply[r + 1] = now
return reply
