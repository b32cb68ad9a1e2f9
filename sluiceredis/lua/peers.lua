-- Divides a learned limit among the gates that share it. Package ext/peers explains the
-- rule; it and this must agree exactly.
--
-- KEYS[1]  a hash: 'granted', the cost granted to all gates; 'news', the instant of the last
--          news and their numbers; and for each gate m<id>, when it reported last, what it
--          wants, its part, the cost granted to it, and how much that was per second
-- ARGV     id, want, granted, use, the stamp that the gate has seen, for how long a gate
--          counts, for how many milliseconds the key is kept, the numbers of the news
--
-- Replies {0, how many gates there are, the part, the part that is due, granted to all, the
-- stamp and the age of the news, their numbers, now}. All times are in microseconds.
local id, want, use, whole_limit = 'm' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), 1000000000
local lasts = tonumber(ARGV[6])
local all = redis.pcall('HGETALL', KEYS[1])
if all.err then return failed(all, 1) end

-- numbers returns the numbers that a text consists of, n of them at least, or nil.
local function numbers(text, n)
  local list = {}
  for number in string.gmatch(text, '[^ ]+') do
    if not string.find(number, '^%-?%d+$') or #number > 16 then return nil end
    list[#list + 1] = tonumber(number)
  end
  return #list >= n and list or nil
end

local news, total, free, since, count = {0}, 0, whole_limit, 0, 0
local wants, gone = {}, {}
for i = 1, #all, 2 do
  local list = numbers(all[i + 1], all[i] == 'granted' and 1 or all[i] == 'news' and 2 or 5)
  if not list then return unreadable(1) end
  if all[i] == 'granted' then
    total = total + list[1]
  elseif all[i] == 'news' then
    news = list
  else
    local seen, wanted, part, granted, used = unpack(list)
    if all[i] == id then
      total = total + ARGV[3] - granted
    elseif seen <= now - lasts or seen > now + lasts then -- the clock stepped back
      gone[#gone + 1] = all[i]
    else
      free = free - part
      since = since + math.floor(used * math.max(0, now - seen) / 1000000000000)
      count = count + 1
      if wanted >= 0 then wants[#wants + 1] = wanted end
    end
  end
end
if #ARGV > 7 and tonumber(ARGV[5]) == news[1] then
  news = {math.max(now, news[1] + 1)}
  for i = 8, #ARGV do news[#news + 1] = tonumber(ARGV[i]) end
end

-- due returns the part that the gate should have, given all wants.
local function due()
  local left, rate = count, news[2] or 0
  if rate <= 0 then return math.floor(whole_limit / left) end
  table.sort(wants)
  local rest = rate
  for _, wanted in ipairs(wants) do
    if wanted * left > rest then break end
    rest, left = rest - wanted, left - 1
  end
  local share = rest / math.max(1, left)
  if left == 0 then
    share = want + rest / count
  elseif want >= 0 and want < share then
    share = want
  end
  return math.floor(share / rate * whole_limit)
end

local part, should = 0, 0
if want == -2 then
  gone[#gone + 1] = id
else
  count = count + 1
  if want >= 0 then wants[#wants + 1] = want end
  should = due()
  part = should
  if (news[2] or 0) > 0 then part = math.max(0, math.min(should, free)) end
end

if count == 0 and not news[2] then
  redis.call('DEL', KEYS[1])
else
  for _, field in ipairs(gone) do redis.call('HDEL', KEYS[1], field) end
  local set = {'granted', whole(total)}
  if want ~= -2 then
    set[3], set[4] = id, table.concat({whole(now), whole(want), whole(part), ARGV[3], ARGV[4]}, ' ')
  end
  if news[1] > 0 and #ARGV > 7 then
    local text = {}
    for i, number in ipairs(news) do text[i] = whole(number) end
    set[#set + 1], set[#set + 2] = 'news', table.concat(text, ' ')
  end
  redis.call('HMSET', KEYS[1], unpack(set))
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
end
local reply = {0, count, part, should, total + since, news[1], news[2] and math.max(0, now - news[1]) or 0}
for i = 2, #news do reply[#reply + 1] = news[i] end
reply[#reply + 1] = now
return reply
