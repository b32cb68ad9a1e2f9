-- A leaky bucket is the instant at which it will be empty, and of which rate it is:
--
--   1790000002000000000 100@2e7             holds 100, leaks one each 20,000,000 ns
--   1790000002500000000 100@2e7+500000000   and is overdrawn by 0.5 s
--   …,…                                          a key that several rates are used for
--
-- Each rate has a bucket, and what one grants is poured into all; of more than two, one
-- bucket stands for all but the last. Package kind explains why that is enough; it and
-- this must agree to the nanosecond.

-- bucket_units returns as many units as ns are at one interval, at another: rounded
-- up, and 2 ns more for what a double loses.
local function bucket_units(ns, from, to)
  if from == to then return ns end
  local part = math.fmod(ns, from)
  local units = (ns - part) / from * to
  if part > 0 then units = units + math.ceil(part / from * to) + 2 end
  return math.min(units, most)
end

-- bucket_number returns the number of a text such as 25e6, or nil.
local function bucket_number(text)
  local digits, zeros = string.match(text, '^(%d+)e?(%d*)$')
  return digits and tonumber(digits) * 10 ^ (tonumber(zeros) or 0)
end

-- bucket_parse returns the bucket that a text is, or nil. One that is fuller than it can
-- be is full: a clock stepped back, and would have it full until it has caught up.
local function bucket_parse(text)
  local digits, c, t, over = string.match(text, '^(%d+) (%d[%de]*)@(%d[%de]*)%+?(%d*)$')
  if not digits or #t > 16 or #c > 16 or #over > 16 then return nil end
  local level = ahead(digits)
  t, c, over = bucket_number(t), bucket_number(c), tonumber(over) or 0
  if not level or not t or not c or not (t * c >= 1 and t * c <= most) then return nil end
  local full = math.min(t * c + over, most)
  if level > full then return {t = t, c = c, level = full, clamped = 1} end
  return {t = t, c = c, level = math.max(0, level), clamped = 0}
end

-- bucket_as returns the level that the bucket of a quota begins with, given that of
-- another.
local function bucket_as(b, t, c)
  local level = bucket_units(b.level, b.t, t)
  if t < b.t or level == 0 then return level end
  if t > b.t and c > b.c then level = math.max(level, math.min(t * c, level + (c - b.c) * t)) end
  return math.min(level, t * c + bucket_units(math.max(0, b.level - b.t * b.c), b.t, t))
end

-- bucket_laxer reports whether bucket a never refuses what b does not.
local function bucket_laxer(a, b) return a.t <= b.t and a.c >= b.c end

-- bucket_cover returns a bucket that stands for both, of which either may be nil.
local function bucket_cover(a, b)
  if not b or b.level == 0 then return a end
  if not a or a.level == 0 then return b end
  if bucket_laxer(a, b) then return a end
  if bucket_laxer(b, a) then return b end
  local t = math.min(a.t, b.t)
  local level = math.max(bucket_units(a.level, a.t, t), bucket_units(b.level, b.t, t))
  return {t = t, c = math.max(a.c, b.c), level = level}
end

-- bucket_read returns the bucket of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    its depth: how many nanoseconds a full one takes to drain
-- ARGV[a+1]  what stands behind the instant, such as " 100@2e7"
local function bucket_read(i, a)
  local tag, value = ARGV[a + 1], redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then return nil, failed(value, i) end
  local c, t = string.match(tag, '^ ([%de]+)@([%de]+)$')
  local b = {key = KEYS[i], depth = tonumber(ARGV[a]), tag = tag, t = bucket_number(t), c = bucket_number(c),
    clamped = 0, level = 0, taken = 0}

  if value then
    local own, others = nil, {}
    for text in string.gmatch(value, '[^,]+') do
      local o = bucket_parse(text)
      if not o then return nil, unreadable(i) end
      b.clamped = math.max(b.clamped, o.clamped)
      if o.t == b.t and o.c == b.c then own = o else others[#others + 1] = o end
    end
    if own then
      b.level = own.level
    elseif #others == 0 then
      return nil, unreadable(i)
    end
    for _, o in ipairs(others) do
      if not own and o.level > 0 then
        b.fresh, b.level = true, math.max(b.level, bucket_as(o, b.t, b.c))
      end
      b.rest = bucket_cover(b.rest, o)
    end
  end

  -- What was lost may have filled the bucket, just before the epoch.
  b.level = math.max(b.level, (since - now) * 1000 + b.depth)
  b.room = b.depth - b.level
  return b
end

-- bucket_write writes what was taken. A refusal writes nothing, unless what was there
-- is impossible, or the bucket is new and would never leak otherwise. Only looking writes
-- nothing.
local function bucket_write(b, asked)
  if b.taken == 0 and not (asked and (b.clamped == 1 or b.fresh)) then return end
  local level, r = b.level + b.taken, b.rest
  if r and b.taken > 0 and (r.level == 0 or bucket_laxer(b, r)) then
    r = nil
  elseif r and b.taken > 0 then
    local after = math.min(most, r.level + bucket_units(b.taken, b.t, r.t))
    if b.t <= r.t and level <= b.depth then after = math.min(after, math.max(r.level, r.t * r.c)) end
    r.level = after
  elseif r and r.t >= b.t then
    r.level = math.max(0, r.level - math.floor(-b.taken / b.t) * r.t)
  end
  if r and r.level == 0 then r = nil end
  if level <= 0 and not r then
    redis.call('DEL', b.key)
    return
  end
  local text, last = instant(math.max(0, level)) .. b.tag, level
  if level > b.depth then text = text .. '+' .. whole(level - b.depth) end
  if r then
    text, last = text .. ',' .. instant(r.level) .. ' ' .. whole(r.c) .. '@' .. whole(r.t), math.max(level, r.level)
    if r.level > r.t * r.c then text = text .. '+' .. whole(r.level - r.t * r.c) end
  end
  redis.call('SET', b.key, text, 'PX', expiry(last))
end

-- bucket_add has so many nanoseconds added to a bucket without asking, or taken out if
-- negative. It returns how many.
local function bucket_add(b, delta)
  -- A debt of more than 2^53 ns could not be computed with any more.
  local after = math.max(0, math.min(b.level + delta, most))
  b.taken = after - b.level
  return math.abs(b.taken)
end

kinds.bucket = {args = 2, found = {'clamped', 'level'}, read = bucket_read, write = bucket_write, add = bucket_add}
