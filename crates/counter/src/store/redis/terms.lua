-- Which amount counts: store/terms.rs, line for line.

local function amount_set(name)
  if meta.set == 0 then return nil end
  local set = redis.call('HGET', BOOK, 'o' .. name)
  return set and tonumber(set)
end

-- The limit that counts for a charge. Notes that its policy has been seen, if that is to be kept.
local function note(charge, policy, keep)
  local amount = charge.amount
  local a = not charge.set and policy ~= 0 and account(charge.name)
  if charge.set then
    amount = charge.set
  elseif a and a.policy ~= 0 then
    if not keep then a = copy(a) end
    local changed = false
    if a.policy ~= policy then
      a.rival, a.rival_amount, a.rival_seen = a.policy, a.asked, now
      changed = true
    end
    if a.rival ~= NONE then
      -- After a step back of the clock the time runs from now.
      a.rival_seen = min(a.rival_seen, now)
      changed = true
      if a.rival_seen + SKEW <= now then
        a.rival = NONE
      else
        amount = min(amount, a.rival_amount)
        a.policy, a.asked = policy, amount
      end
    end
    if changed and keep then accounts_changed[charge.name] = true end
  end
  return { kind = charge.kind, span = charge.span, amount = amount, burst = charge.burst }
end

-- A charge under this policy was taken with this limit.
local function took(a, charge, policy)
  if policy ~= 0 and not charge.set then a.policy, a.asked = policy, charge.limit.amount end
end

-- The most that one request may hold: a policy that sets no share of its own amount sets none of another.
local function largest_of(charge)
  if charge.set and charge.largest >= capacity_of(charge) then return MOST end
  return charge.largest
end
